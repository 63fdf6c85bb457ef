import pytest

from app.proxy.passage import Passage, page_redirect, passage_of

NAMES = {"small", "org/small", "org/small:q4 größer", "org"}


@pytest.mark.parametrize(
    ("raw", "name", "path"),
    [
        (b"small/props", "small", b"/props"),
        (b"small/", "small", b"/"),
        (b"small", "small", b"/"),
        (b"small/a%2Fb/c%20d", "small", b"/a%2Fb/c%20d"),
        (b"small//x", "small", b"//x"),
        (b"org%2Fsmall/v1/models", "org/small", b"/v1/models"),
        (b"org%2Fsmall%3Aq4%20gr%C3%B6%C3%9Fer/", "org/small:q4 größer", b"/"),
        (b"org/small/v1/models", "org/small", b"/v1/models"),
        (b"org/small:q4%20gr%C3%B6%C3%9Fer/slots/0", "org/small:q4 größer", b"/slots/0"),
        (b"org/other/x", "org", b"/other/x"),
        (b"nobody/small/x", "nobody", b"/small/x"),
        (b"", "", b"/"),
        (b"/props", "", b"/props"),
        (b"%FF/x", "\ufffd", b"/x"),
        (b"small/" + b"a/" * 50, "small", b"/" + b"a/" * 50),
    ],
)
def test_whose_engine_and_which_path(raw: bytes, name: str, path: bytes) -> None:
    assert passage_of(b"/upstream/" + raw, NAMES) == Passage(name, path)


@pytest.mark.parametrize(
    ("raw", "page"),
    [
        (b"small", b"./small/"),
        (b"org%2Fsmall:x", b"./org%2Fsmall:x/"),
        (b"small/", None),
        (b"small/x", None),
        (b"", None),
    ],
)
def test_where_the_page_is(raw: bytes, page: bytes | None) -> None:
    assert page_redirect(b"/upstream/" + raw) == page
