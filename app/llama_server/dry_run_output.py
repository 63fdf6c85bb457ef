"""The output of an engine that measures a launch, followed line by line until it has said all. Pure."""

from collections import deque
from collections.abc import Sequence

from app.llama_server.breakdown import Breakdown, read_line

_LINES_KEPT = 200

_EXTRA_BEGINS = "getting device memory data for the extra model"
_EXTRA_FAILED = "failed to measure the memory of the extra model"
_NEEDS_TARGET = "requires ctx_other to be set"
_TARGET_FAILED = "encountered an error while trying to fit params"
_GAVE_UP = "failed to fit params to free device memory"
# With these the engine compares what it measured with what is free.
_COMPARES = ("projected memory use", "projected to use")
# After these it loads for real, or has done so already.
_FIT_ENDED = ("fitting params to free memory took", "load_tensors: loading", "model loaded", "listening on")


class DryRunOutput:
    """What was said so far.

    `target` and `extra` are the breakdowns; `extra` is of a draft model or of an MTP context. `remeasured` tells that
    the engine went on to other layouts than the one asked for.
    """

    def __init__(self) -> None:
        self.target: Breakdown | None = None
        self.extra: Breakdown | None = None
        self.target_error: str | None = None
        self.extra_error: str | None = None
        self.extra_needs_target = False
        self.gave_up: str | None = None
        self.remeasured = False
        self.fit_ended = False
        self.heard = False
        self._extra_begun = False
        self._compared = False
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def lines(self) -> Sequence[str]:
        """The last lines as text, oldest first; without the engine's remarks on its own measuring."""
        return list(self._lines)

    @property
    def measured(self) -> bool:
        """Whether nothing more will be said of the launch as it was asked for.

        Told by the comparison that follows, not by the last breakdown: after that the engine still hands back what it
        held. An RPC server that answers a client which is no longer there dies of it (SIGPIPE, build 11434), so the
        engine must be ended while it is busy with itself.
        """
        return self._compared or self.target_error is not None or self.fit_ended

    def add(self, line: str) -> None:
        """Take in one line (without its line feed)."""
        self.heard = True
        text, breakdown = read_line(line)
        if breakdown is not None:
            self._measured(breakdown)
        elif _EXTRA_BEGINS in text:
            self._extra_begun = True
        elif _EXTRA_FAILED in text:
            self.extra_error = text.rpartition(": ")[2]
        elif _TARGET_FAILED in text:
            self.target_error = text.rpartition(": ")[2]
        elif _GAVE_UP in text:
            self.gave_up = text.partition(_GAVE_UP)[2].removeprefix(": ")
        elif any(mark in text for mark in _COMPARES):
            self._compared = True
        else:
            # Said again of later layouts; the first time is the launch as asked.
            self.extra_needs_target |= _NEEDS_TARGET in text
            self.fit_ended |= any(mark in text for mark in _FIT_ENDED)
            self._lines.append(text)

    def _measured(self, breakdown: Breakdown) -> None:
        if self.measured:
            self.remeasured = True
        elif self._extra_begun:
            self.extra = breakdown
        else:
            # With the context left to the engine the target is measured twice: the second is what would load.
            self.target = breakdown
