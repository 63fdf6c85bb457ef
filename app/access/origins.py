"""Browsers: a web page of somebody else must not drive a service that asks no key.

A page can send requests to loopback, and by naming its own host after our address (DNS rebinding) it could read the
answers too. So where no key is asked, the Host must be one of this machine, and what changes something must not come
from a foreign Origin. Programs send no Origin and are not concerned.
"""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.access.refusals import Refusal
from app.errors import AccessDenied
from app.settings import Settings

_READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class OriginGuard:
    """Which Host and Origin may come in. Where keys are asked for everything may: a foreign page has none.

    `trusted_origins` are the pages that CORS lets read answers, too.
    """

    asks_keys: Callable[[], bool]
    any_host: bool
    trusted_hosts: frozenset[str]
    trusted_origins: frozenset[str] = frozenset()

    def admit(
        self, method: str, headers: Iterable[tuple[bytes, bytes]], server_host: str | None, *, wakes: bool = False
    ) -> None:
        """Let a request pass, or raise AccessDenied (`status` 403). `server_host` is the address it came in at.

        What `wakes` a profile is not for pages of other sites, even where it only reads: an image there would do.
        """
        if self.asks_keys():
            return
        host, origin, site = None, None, None
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
            elif name == b"sec-fetch-site":
                site = value
        if host is not None and not self.any_host:
            self._demand(host, server_host, "Host")
        if wakes and site == b"cross-site" and (origin is None or origin not in self.trusted_origins):
            raise AccessDenied(
                "a page of another site asked for this, and no key is configured: configure a key, or name the page's "
                "origin in PACELINE_CORS_ORIGINS",
                status=403,
                reason=Refusal.FOREIGN_ORIGIN.value,
            )
        if origin is not None and method not in _READS and origin not in self.trusted_origins:
            authority = urlsplit(origin).netloc
            if not self.any_host or authority != host:
                self._demand(authority, server_host, "Origin")

    def _demand(self, authority: str, server_host: str | None, header: str) -> None:
        name = _host_of(authority)
        if name == server_host or name in self.trusted_hosts or _is_local(name):
            return
        why = "is not this machine and no key is configured: configure a key, or name it in PACELINE_TRUSTED_HOSTS"
        raise AccessDenied(
            f"{header} {authority!r} {why}",
            recorded=f"{header} {why}",
            status=403,
            reason=Refusal.FOREIGN_ORIGIN.value,
        )


def origin_guard(settings: Settings, asks_keys: Callable[[], bool]) -> OriginGuard:
    """The guard for these settings; `asks_keys` says whether there is a key at all by now."""
    return OriginGuard(
        asks_keys=asks_keys,
        any_host=not settings.listens_on_loopback,
        trusted_hosts=frozenset(name.lower() for name in settings.trusted_hosts),
        trusted_origins=frozenset(settings.cors_origins),
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
