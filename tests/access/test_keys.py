from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from access.shelf import Shelf

from app.access.key import Key, KeyKind
from app.access.keys import Gatekeeper, demand_keys, gatekeeper, may_be_without_keys, shown_key
from app.errors import AccessDenied, SettingsInvalid
from app.settings import Settings

GOOD = "a-configured-key-of-some-length"


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)


def keeper(shelf: Shelf, **values: Any) -> Gatekeeper:
    chosen = settings(**values)
    return gatekeeper(chosen, shelf.book(chosen.read_admin_key()))


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {key}".encode())]


def refused(
    guard: Gatekeeper, path: str, headers: Sequence[tuple[bytes, bytes]], *, is_inference: bool = False
) -> tuple[int, str]:
    with pytest.raises(AccessDenied) as denied:
        guard.admit(path, headers, is_inference=is_inference)
    return denied.value.details["status"], denied.value.details["reason"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.3.2.1"])
def test_loopback_needs_no_key(shelf: Shelf, host: str) -> None:
    chosen = settings(host=host)
    book = shelf.book()
    demand_keys(chosen, book)
    assert gatekeeper(chosen, book).admit("/profiles", [], is_inference=False) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
async def test_beyond_loopback_the_service_refuses_to_start_without_a_key(shelf: Shelf, host: str) -> None:
    empty = shelf.book()
    with pytest.raises(SettingsInvalid, match=r"PACELINE_ADMIN_KEY.*paceline keys make"):
        demand_keys(settings(host=host), empty)
    demand_keys(settings(host=host, admin_key=GOOD), shelf.book(GOOD))
    open_to_all = settings(host=host, allow_unauthenticated=True)
    assert may_be_without_keys(open_to_all)
    demand_keys(open_to_all, empty)
    gatekeeper(open_to_all, empty).admit("/profiles", [], is_inference=False)
    await empty.make("boss", KeyKind.ADMIN)
    demand_keys(settings(host=host), shelf.book())
    assert refused(gatekeeper(open_to_all, empty), "/profiles", []) == (401, "missing")


def test_a_short_key_of_the_settings_is_warned_of_but_not_told(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    demand_keys(settings(admin_key=GOOD), shelf.book(GOOD))
    assert caplog.records == []
    demand_keys(settings(admin_key="hunter2"), shelf.book("hunter2"))
    assert "openssl rand" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_key_from_a_file(shelf: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from-file\n", encoding="utf-8")
    guard = keeper(shelf, admin_key_file=path)
    key = guard.admit("/profiles", [(b"x-api-key", b"from-file")], is_inference=False)
    assert key == Key("configured", KeyKind.ADMIN)
    path.write_text("  \n", encoding="utf-8")
    with pytest.raises(SettingsInvalid, match="empty"):
        keeper(shelf, admin_key_file=path)
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        keeper(shelf, admin_key_file=tmp_path / "absent")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], "missing"),
        ([(b"authorization", b"Bearer wrong")], "unknown"),
        ([(b"authorization", b"Basic right")], "missing"),
        ([(b"x-api-key", b"")], "unknown"),
    ],
)
def test_without_the_right_key_nothing_passes(shelf: Shelf, headers: list[tuple[bytes, bytes]], reason: str) -> None:
    guard = keeper(shelf, admin_key="right")
    for path in ("/profiles", "/v1/models", "/"):
        assert refused(guard, path, headers) == (401, reason)


async def test_an_inference_key_is_for_inference(shelf: Shelf) -> None:
    chosen = settings(admin_key=GOOD, host="0.0.0.0")
    book = shelf.book(GOOD)
    made = await book.make("web", KeyKind.INFERENCE, profiles=["a"])
    guard, shown = gatekeeper(chosen, book), bearer(made.secret)
    key = guard.admit("/v1/chat/completions", shown, is_inference=True)
    assert key is not None
    assert (key.name, key.profiles) == ("web", frozenset({"a"}))
    guard.admit("/health", shown, is_inference=False)
    for path in ("/profiles", "/metrics", "/keys", "/healthy", "/"):
        assert refused(guard, path, shown) == (403, "not-permitted")
    guard.admit("/keys", bearer(GOOD), is_inference=False)


def test_health_and_metrics_are_open_on_loopback_only(shelf: Shelf) -> None:
    local = keeper(shelf, admin_key="k")
    distant = keeper(shelf, admin_key="k", host="0.0.0.0")
    for path in ("/health", "/metrics"):
        local.admit(path, [], is_inference=False)
        assert refused(distant, path, []) == (401, "missing")
    keeper(shelf, admin_key="k", host="0.0.0.0", metrics_public=True).admit("/metrics", [], is_inference=False)


async def test_a_key_for_metrics_opens_metrics_and_health_and_nothing_else(shelf: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "metrics.key"
    path.write_text("for-metrics-alone\n", encoding="utf-8")
    chosen = settings(admin_key=GOOD, metrics_key_file=path, host="0.0.0.0")
    book = shelf.book(chosen.read_admin_key(), metrics=chosen.read_metrics_key())
    made = await book.make("prometheus", KeyKind.METRICS)
    for secret in ("for-metrics-alone", made.secret):
        guard, shown = gatekeeper(chosen, book), bearer(secret)
        guard.admit("/metrics", shown, is_inference=False)
        guard.admit("/health", shown, is_inference=False)
        for control in ("/profiles", "/keys", "/metricsx", "/ready", "/"):
            assert refused(guard, control, shown) == (403, "not-permitted")
        assert refused(guard, "/v1/chat/completions", shown, is_inference=True) == (403, "not-permitted")
    assert [(key.name, key.kind) for key in book.list()] == [
        ("configured", KeyKind.ADMIN),
        ("configured-metrics", KeyKind.METRICS),
        ("prometheus", KeyKind.METRICS),
    ]


def test_a_key_for_metrics_alone_neither_closes_the_service_nor_lets_it_listen(shelf: Shelf) -> None:
    book = shelf.book(metrics="for-metrics-alone")
    assert gatekeeper(settings(), book).admit("/profiles", [], is_inference=False) is None
    with pytest.raises(SettingsInvalid, match="there is no key"):
        demand_keys(settings(host="0.0.0.0"), book)


def test_both_headers_show_a_key() -> None:
    assert shown_key([(b"authorization", b"bearer  a ")]) == b"a"
    assert shown_key([(b"x-api-key", b" b")]) == b"b"
    assert shown_key([(b"cookie", b"x")]) is None
