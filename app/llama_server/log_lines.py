"""What an engine's output says about how it ended. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_LINES_KEPT = 20


class FailureReason(StrEnum):
    """Why a server ended without being asked. `killed-by-signal-N` is made for each signal."""

    OUT_OF_MEMORY = "out-of-memory"
    FLAG_UNKNOWN = "flag-unknown"
    FLAG_VALUE = "flag-value"
    BAD_MODEL = "bad-model"
    DRAFT_FAILED = "draft-failed"
    ADDRESS_IN_USE = "address-in-use"
    EXITED = "exited"


# The most telling first: a model that does not fit also says "model loading error" at the end.
_PATTERNS: tuple[tuple[FailureReason, re.Pattern[str]], ...] = (
    (FailureReason.FLAG_UNKNOWN, re.compile(r"error: invalid argument:|cannot honour -|argument has been removed")),
    (FailureReason.FLAG_VALUE, re.compile(r"error while handling argument|error: .*invalid (value|device)")),
    (FailureReason.ADDRESS_IN_USE, re.compile(r"couldn't bind HTTP server socket|[Aa]ddress already in use")),
    (
        FailureReason.OUT_OF_MEMORY,
        re.compile(
            r"out of memory|OutOf(Device|Host)?Memory|failed to allocate|unable to allocate|cannot allocate memory"
            r"|std::bad_alloc|alloc_tensor_range: failed",
            re.IGNORECASE,
        ),
    ),
    (
        FailureReason.DRAFT_FAILED,
        re.compile(r"failed to (initialize speculative|create MTP context|load draft)|draft model .* (failed|missing)"),
    ),
    (
        FailureReason.BAD_MODEL,
        re.compile(r"error loading model|failed to load model|model loading error|failed to open GGUF|invalid magic"),
    ),
)
# Told at error level while memory is measured, and normal there.
_HARMLESS = re.compile(r"this warning is normal during memory fitting")
_ERROR_LINE = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} E |^(error|fatal)\b|GGML_ASSERT|what\(\):|: error:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Failure:
    """A named reason, one sentence, and the lines that tell it."""

    reason: str
    message: str
    last_lines: tuple[str, ...] = ()


def failure_of(exit_code: int, lines: Sequence[str]) -> Failure:
    """Name the end of a process from its exit code (negative: the signal's number) and its last lines."""
    telling = [line for line in lines if not _HARMLESS.search(line)]
    last_lines = tuple(telling[-_LINES_KEPT:])
    for reason, pattern in _PATTERNS:
        for line in telling:
            if pattern.search(line):
                return Failure(reason, _sentence(line, exit_code), last_lines)
    errors = [line for line in telling if _ERROR_LINE.search(line)]
    said = f" Its last error: {_text(errors[-1])}" if errors else ""
    if exit_code < 0:
        return Failure(
            f"killed-by-signal-{-exit_code}", f"The server was killed by signal {-exit_code}.{said}", last_lines
        )
    return Failure(FailureReason.EXITED, f"The server exited with code {exit_code}.{said}", last_lines)


def _sentence(line: str, exit_code: int) -> str:
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
    return f"The server {how}: {_text(line)}"


def _text(line: str) -> str:
    """The message without the engine's time stamp."""
    return re.sub(r"^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ", "", line).strip()
