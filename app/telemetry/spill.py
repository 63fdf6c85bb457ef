"""The spill file: what the database did not take in time of requests and acceptance windows, until it does.

One event is one line of JSON, members by name, so that a later version reads what an earlier one left. A window begins
with its tag; a line without one is a request.
"""

from pathlib import Path

import msgspec

from app.line_file import LineFile
from app.proxy.observer import RequestFinished
from app.telemetry.recorded import Recorded
from app.telemetry.rows import storable
from app.telemetry.windows import RecordedWindow

SPILL_BYTES_MOST = 64 * 1024 * 1024
SPILL_BYTES_RESERVED = 2 * 1024 * 1024
_WINDOW_BEGINS = b'{"kind":"window",'

_request_of = msgspec.json.Decoder(RequestFinished).decode
_window_of = msgspec.json.Decoder(RecordedWindow).decode


class SpillFile(LineFile[Recorded]):
    """A file of at most `bytes_most`, `bytes_reserved` of them from the start."""

    def __init__(
        self, path: Path, *, bytes_most: int = SPILL_BYTES_MOST, bytes_reserved: int = SPILL_BYTES_RESERVED
    ) -> None:
        super().__init__(path, encode=_line, decode=_event, bytes_most=bytes_most, bytes_reserved=bytes_reserved)


def _line(event: Recorded) -> bytes:
    try:
        return msgspec.json.encode(event) + b"\n"
    except UnicodeEncodeError:
        if isinstance(event, RecordedWindow):
            raise  # nothing in it comes from outside
        return msgspec.json.encode(_mended(event)) + b"\n"


def _mended(event: RequestFinished) -> RequestFinished:
    """Without halves of surrogate pairs, which JSON can smuggle in."""
    texts = ("client_request_id", "requested_model", "route_reason", "error", "client", "category")
    values = {name: getattr(event, name) for name in texts}
    return msgspec.structs.replace(
        event, **{name: value if value is None else storable(value) for name, value in values.items()}
    )


def _event(line: bytes) -> Recorded:
    """Raises ValueError (msgspec's errors and those of UTF-8 are such)."""
    return _window_of(line) if line.startswith(_WINDOW_BEGINS) else _request_of(line)
