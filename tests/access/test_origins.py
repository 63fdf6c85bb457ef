import contextlib
from typing import Any

import pytest

from app.access.origins import origin_guard
from app.errors import AccessDenied
from app.settings import Settings


def admitted(
    method: str = "POST",
    *,
    host: str | None = None,
    origin: str | None = None,
    site: str | None = None,
    wakes: bool = False,
    has_keys: bool = False,
    **settings: Any,
) -> bool:
    headers = [(b"host", host.encode())] if host is not None else []
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if site is not None:
        headers.append((b"sec-fetch-site", site.encode()))
    guard = origin_guard(Settings(_env_file=None, **settings), lambda: has_keys)
    with contextlib.suppress(AccessDenied):
        guard.admit(method, headers, "127.0.0.1", wakes=wakes)
        return True
    return False


@pytest.mark.parametrize("host", ["127.0.0.1:8088", "localhost:8088", "LOCALHOST", "[::1]:8088", "a.localhost", None])
def test_this_machine_by_any_of_its_names(host: str | None) -> None:
    assert admitted("GET", host=host)
    assert admitted(host=host)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8088", "127.0.0.1.evil.example", "10.0.0.7:8088", ""])
def test_a_host_renamed_to_our_address_is_refused_also_for_reading(host: str) -> None:
    assert not admitted("GET", host=host)


def test_what_is_kept_of_a_refusal_does_not_name_the_host() -> None:
    guard = origin_guard(Settings(_env_file=None), lambda: False)
    with pytest.raises(AccessDenied, match="evil") as refused:
        guard.admit("GET", [(b"host", b"evil.example")], "127.0.0.1")
    assert "evil" not in refused.value.recorded


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example"])
def test_a_foreign_page_changes_nothing(origin: str) -> None:
    assert not admitted("POST", host="127.0.0.1:8088", origin=origin)
    assert not admitted("DELETE", host="127.0.0.1:8088", origin=origin)
    # What it reads it cannot see: there is no CORS.
    assert admitted("GET", host="127.0.0.1:8088", origin=origin)


def test_an_image_on_a_foreign_page_wakes_no_profile() -> None:
    assert not admitted("GET", host="127.0.0.1:8088", site="cross-site", wakes=True)
    assert admitted("GET", host="127.0.0.1:8088", site="cross-site")
    for site in ("same-origin", "same-site", "none", None):
        assert admitted("GET", host="127.0.0.1:8088", site=site, wakes=True)
    origins = {"cors_origins": ("https://chat.example",)}
    page = "https://chat.example"
    assert admitted("GET", host="127.0.0.1:8088", origin=page, site="cross-site", wakes=True, **origins)
    assert admitted("GET", host="127.0.0.1:8088", site="cross-site", wakes=True, has_keys=True)


def test_pages_of_this_machine_and_trusted_hosts() -> None:
    assert admitted(host="127.0.0.1:8088", origin="http://localhost:3000")
    assert admitted(host="llm.lan", origin="https://llm.lan", trusted_hosts="llm.lan")
    assert not admitted(host="other.lan", trusted_hosts="llm.lan")


def test_a_key_makes_the_guard_needless() -> None:
    assert admitted(host="evil.example", origin="https://evil.example", has_keys=True)


def test_pages_that_cors_lets_in_may_change_things_too_but_not_under_another_host() -> None:
    pages = {"cors_origins": "https://chat.example"}
    assert admitted(host="127.0.0.1:8088", origin="https://chat.example", **pages)
    assert not admitted(host="127.0.0.1:8088", origin="http://chat.example", **pages)
    assert not admitted(host="127.0.0.1:8088", origin="https://chat.example.evil.example", **pages)
    assert not admitted(host="chat.example", origin="https://chat.example", **pages)


def test_a_service_open_on_purpose_takes_any_host_but_pages_only_of_its_own() -> None:
    open_service = {"host": "0.0.0.0", "allow_unauthenticated": True}
    guard = origin_guard(Settings(_env_file=None, **open_service), lambda: False)
    guard.admit("GET", [(b"host", b"box.lan:8088")], "0.0.0.0")
    guard.admit("POST", [(b"host", b"box.lan:8088"), (b"origin", b"http://box.lan:8088")], "0.0.0.0")
    with pytest.raises(AccessDenied) as denied:
        guard.admit("POST", [(b"host", b"box.lan:8088"), (b"origin", b"https://evil.example")], "0.0.0.0")
    assert denied.value.details == {"status": 403, "reason": "foreign-origin"}
