from pathlib import Path
from typing import Any

import pytest

from app.access.keys import gatekeeper, shown_key
from app.errors import AccessDenied, SettingsInvalid
from app.settings import Settings


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.3.2.1"])
def test_loopback_needs_no_key(host: str) -> None:
    gatekeeper(settings(host=host)).admit("/profiles", [])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_beyond_loopback_the_service_refuses_to_start_without_a_key(host: str) -> None:
    with pytest.raises(SettingsInvalid, match="PACELINE_ADMIN_KEY"):
        gatekeeper(settings(host=host))
    gatekeeper(settings(host=host, allow_unauthenticated=True)).admit("/profiles", [])
    gatekeeper(settings(host=host, admin_key="k"))


def test_a_key_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from-file\n", encoding="utf-8")
    keeper = gatekeeper(settings(admin_key_file=path))
    keeper.admit("/profiles", [(b"x-api-key", b"from-file")])
    path.write_text("  \n", encoding="utf-8")
    with pytest.raises(SettingsInvalid, match="empty"):
        gatekeeper(settings(admin_key_file=path))
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        gatekeeper(settings(admin_key_file=tmp_path / "absent"))


@pytest.mark.parametrize(
    "headers",
    [[], [(b"authorization", b"Bearer wrong")], [(b"authorization", b"Basic right")], [(b"x-api-key", b"")]],
)
def test_without_the_right_key_nothing_passes(headers: list[tuple[bytes, bytes]]) -> None:
    keeper = gatekeeper(settings(admin_key="right"))
    for path in ("/profiles", "/v1/models", "/requests"):
        with pytest.raises(AccessDenied) as denied:
            keeper.admit(path, headers)
        assert denied.value.details["status"] == 401
        assert "right" not in denied.value.message


def test_health_and_metrics_are_open_on_loopback_only() -> None:
    local = gatekeeper(settings(admin_key="k"))
    local.admit("/health", [])
    local.admit("/metrics", [])
    distant = gatekeeper(settings(admin_key="k", host="0.0.0.0"))
    for path in ("/health", "/metrics"):
        with pytest.raises(AccessDenied):
            distant.admit(path, [])
    gatekeeper(settings(admin_key="k", host="0.0.0.0", metrics_public=True)).admit("/metrics", [])


def test_both_headers_show_a_key() -> None:
    assert shown_key([(b"authorization", b"bearer  a ")]) == b"a"
    assert shown_key([(b"x-api-key", b" b")]) == b"b"
    assert shown_key([(b"cookie", b"x")]) is None
