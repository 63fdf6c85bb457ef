import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy.event_reading import chunked_streams, data_of, streams

from app.proxy.sse import OutputWatch, WholeLines, event_of, first_event, last_events

STREAM = (
    b": warm\n\n"
    b'data: {"prompt_progress":{"total":9}}\n\n'
    b'event: message\ndata: {"a":1}\n\n'
    b"data: two\ndata: lines\n\n"
    b'data:{"b":2}\n\n'
    b":\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = [b'{"prompt_progress":{"total":9}}', b'{"a":1}', b"two\nlines", b'{"b":2}', b"[DONE]"]


@pytest.mark.parametrize(
    "stream", [STREAM, STREAM.replace(b"\n", b"\r\n"), STREAM.replace(b"\n", b"\r")], ids=["lf", "crlf", "cr"]
)
class TestLastEvents:
    def test_all_of_a_whole_stream(self, stream: bytes) -> None:
        assert last_events(stream, 9, from_start=True) == EVENTS

    @pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
    def test_no_more_than_asked_for(self, stream: bytes, most: int) -> None:
        assert last_events(stream, most, from_start=True) == EVENTS[-most:]

    def test_without_the_last_blank_line(self, stream: bytes) -> None:
        assert last_events(stream.rstrip(), 9, from_start=True) == EVENTS
        assert last_events(stream.rstrip() + b"\n", 9, from_start=True) == EVENTS

    def test_a_tail_that_begins_anywhere_never_shows_half_an_event(self, stream: bytes) -> None:
        for start in range(len(stream)):
            events = last_events(stream[start:], 9, from_start=False)
            assert events == EVENTS[len(EVENTS) - len(events) :]

    def test_a_tail_loses_at_most_the_event_it_begins_in(self, stream: bytes) -> None:
        start = stream.index(b'{"a"')
        assert last_events(stream[start:], 9, from_start=False) == EVENTS[2:]


def told_in(stream: bytes) -> list[bytes]:
    """The data that is told by events; the last one counts without its blank line."""
    return [data for data in data_of(stream + b"\n\n") if data]


@given(streams, st.integers(1, 5))
def test_the_last_events_of_any_stream_are_those_of_the_standard(stream: bytes, most: int) -> None:
    assert last_events(stream, most, from_start=True) == told_in(stream)[-most:]


@given(streams, st.integers(0, 400))
def test_the_tail_of_any_stream_shows_whole_events_only(stream: bytes, start: int) -> None:
    told = told_in(stream)
    events = last_events(stream[start:], 99, from_start=False)
    assert events == told[len(told) - len(events) :]


@given(streams)
def test_the_first_event_of_any_stream_is_that_of_the_standard(stream: bytes) -> None:
    assert [first_event(stream)] == (told_in(stream)[:1] or [b""])


@given(st.binary(max_size=40), st.sampled_from([b"", b"a\r\nb", b"\r", b"x\n"]))
def test_a_document_of_any_bytes_is_one_event(document: bytes, lines: bytes) -> None:
    (data,) = data_of(event_of(document + lines, b"error"))
    assert data == (document + lines).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def test_nothing_gives_nothing() -> None:
    assert last_events(b"", 9, from_start=True) == []
    assert last_events(b"", 9, from_start=False) == []
    assert last_events(b": ping\n\n:\n\n", 9, from_start=True) == []


def test_other_fields_are_no_data() -> None:
    assert last_events(b"database: x\nid: 1\nretry: 2\n\ndata\n\n", 9, from_start=True) == []


OUTPUT_AT = STREAM.index(b'{"a":1}\n') + len(b'{"a":1}\n')


def chunk_with_output(stream: bytes, cut: int) -> int | None:
    watch = OutputWatch()
    for number, chunk in enumerate((stream[:cut], stream[cut:])):
        if watch.feed(chunk):
            return number
    return None


def test_output_begins_at_the_first_event_that_is_no_progress_wherever_chunks_are_cut() -> None:
    for cut in range(len(STREAM) + 1):
        assert chunk_with_output(STREAM, cut) == (0 if cut >= OUTPUT_AT else 1), cut


@given(chunked_streams)
def test_any_chunks_show_the_same_beginning_of_output(chunks: list[bytes]) -> None:
    stream = b"".join(chunks)
    single = OutputWatch()
    begins = next((at for at in range(len(stream)) if single.feed(stream[at : at + 1])), None)
    watch, passed = OutputWatch(), 0
    for chunk in chunks:
        passed += len(chunk)
        assert watch.feed(chunk) == (begins is not None and begins < passed)
        if begins is not None and begins < passed:
            break


def test_output_is_found_byte_by_byte() -> None:
    watch = OutputWatch()
    found = [index for index in range(OUTPUT_AT) if watch.feed(STREAM[index : index + 1])]
    assert found == [OUTPUT_AT - 1]


@pytest.mark.parametrize(
    "stream",
    [
        b":\n\n: data: x\n\n",
        b'data: {"error":{"message":"no"}}\n\n',
        b"data: [DONE]\n\n",
        b"event: start\n\ndata:\n\n",
        b'data: {"choices":[],"prompt_progress":{"total":9,"cache":0}}\n\n',
    ],
)
def test_what_is_no_output(stream: bytes) -> None:
    assert OutputWatch().feed(stream) is False


def test_text_that_speaks_of_progress_is_output() -> None:
    assert OutputWatch().feed(b'data: {"content":"the \\"prompt_progress\\": 3"}\n\n')


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    watch = OutputWatch(most_bytes=100)
    assert not watch.feed(b"data: " + b"x" * 90)
    assert watch.feed(b"x" * 10)


@given(st.lists(st.text("ab\r\n: ", max_size=12).map(str.encode), max_size=12), st.integers(0, 6))
def test_lines_are_passed_on_when_they_are_whole(chunks: list[bytes], most_bytes: int) -> None:
    lines, passed = WholeLines(most_bytes), b""
    for chunk in chunks:
        piece = lines.feed(chunk)
        assert len(lines.rest) <= most_bytes
        assert not lines.rest or piece == b"" or piece.endswith((b"\n", b"\r"))
        passed += piece
    assert passed + lines.rest == b"".join(chunks)


def test_half_a_line_waits_for_its_end() -> None:
    lines = WholeLines()
    assert lines.feed(b'data: {"a":1}\n\ndata: {"b') == b'data: {"a":1}\n\n'
    assert lines.is_between_events
    assert lines.rest == b'data: {"b'
    assert lines.feed(b'":2}') == b""
    assert lines.feed(b"\n") == b'data: {"b":2}\n'
    assert not lines.is_between_events
    assert lines.rest == b""
