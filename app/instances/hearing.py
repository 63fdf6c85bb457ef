"""What a server prints, and what is learnt from it."""

import time

from app.instances.evidence import MeasuredPlacement
from app.instances.loading import ExpectedBytes, LoadWatch
from app.instances.measured import PlacementReader
from app.instances.output import OutputLog
from app.launch.report import Launch


class Hearing:
    """Keeps the lines of one life; `load` says how far its load has come."""

    def __init__(self, output: OutputLog, launch: Launch) -> None:
        self.load = LoadWatch(ExpectedBytes.of(launch), time.monotonic())
        self._output = output
        self._launch = launch
        self._reader = PlacementReader()

    def line(self, text: str, *, is_loading: bool) -> MeasuredPlacement | None:
        """Take in a line. Where everything lies, once: with the line that says that the model is loaded."""
        self._output.append(text)
        if is_loading:
            self.load.line(text, time.monotonic())
        return self._reader.placement(self._launch) if self._reader.line(text) else None
