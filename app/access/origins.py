"""Browsers: a web page of somebody else must not drive a service that asks no key.

A page can send requests to loopback, and by naming its own host after our address (DNS rebinding) it could read the
answers too. So where no key is asked, the Host must be one of this machine, and what changes something must not come
from a foreign Origin. Programs send no Origin and are not concerned.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.errors import AccessDenied
from app.settings import Settings

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class OriginGuard:
    """Which Host and Origin may come in. `is_needed` is False where a key is asked: a foreign page has none."""

    is_needed: bool
    any_host: bool
    trusted_hosts: frozenset[str]

    def admit(self, method: str, headers: Iterable[tuple[bytes, bytes]], server_host: str | None) -> None:
        """Let a request pass, or raise AccessDenied (`status` 403). `server_host` is the address it came in at."""
        if not self.is_needed:
            return
        host, origin = None, None
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
        if host is not None and not self.any_host:
            self._demand(host, server_host, "Host")
        if origin is not None and method not in _READS:
            authority = urlsplit(origin).netloc
            if not self.any_host or authority != host:
                self._demand(authority, server_host, "Origin")

    def _demand(self, authority: str, server_host: str | None, header: str) -> None:
        name = _host_of(authority)
        if name == server_host or name in self.trusted_hosts or _is_local(name):
            return
        raise AccessDenied(
            f"{header} {authority!r} is not this machine and no key is configured: configure a key, or name the host "
            "in PACELINE_TRUSTED_HOSTS",
            status=403,
        )


def origin_guard(settings: Settings) -> OriginGuard:
    """The guard for these settings."""
    return OriginGuard(
        is_needed=settings.read_admin_key() is None,
        any_host=not settings.listens_on_loopback,
        trusted_hosts=frozenset(name.lower() for name in settings.trusted_hosts),
    )


def _host_of(authority: str) -> str:
    """The host of `host:port`, in lower case, without the brackets of an IPv6 address."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.rpartition(":")[0].lower() if ":" in authority else authority.lower()


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
