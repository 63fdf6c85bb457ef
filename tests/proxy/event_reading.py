"""A plain reading of event streams, to compare with: "Interpreting an event stream" of the HTML standard."""

import re
from itertools import pairwise

from hypothesis import strategies as st

_LINE_END = re.compile(rb"\r\n|\n|\r")


def data_of(stream: bytes) -> list[bytes]:
    """The data of every event of a stream that has ended; one without its blank line is none."""
    *lines, _unended = _LINE_END.split(stream.removeprefix(b"\xef\xbb\xbf"))
    events, buffer = [], b""
    for line in lines:
        if not line:
            if buffer:
                events.append(buffer[:-1])
            buffer = b""
            continue
        field, _, value = line.partition(b":")
        if field == b"data":
            buffer += value.removeprefix(b" ") + b"\n"
    return events


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """The stream in chunks, some of them empty."""
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


_pieces = st.sampled_from(
    [
        b"data", b"data:", b"data: ", b"data:  ", b"datum: ", b"data :", b" data: x", b":", b": comment",
        b"event: x", b"id: 1", b"retry: 9", b"\xef\xbb\xbf", b'{"a":1}', b"[DONE]", "é→😀".encode(), b"x", b"\0", b" ",
    ]
)  # fmt: skip
_ends = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
_lines = st.builds(lambda pieces, end: b"".join(pieces) + end, st.lists(_pieces, max_size=3), _ends)

streams = st.builds(
    lambda mark, lines, rest: mark + b"".join(lines) + rest,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
    st.lists(_lines, max_size=14),
    st.sampled_from([b"", b"data: half", b"\r"]),
)
"""Event streams as they may be: every kind of line and of line end, with and without a byte order mark."""

chunked_streams = st.builds(cut, streams, st.lists(st.integers(0, 10_000), max_size=12))
