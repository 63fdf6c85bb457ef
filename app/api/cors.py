"""CORS: which web pages may read answers in a browser. None, unless the settings name them."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# What clients find out from headers of ours.
_READABLE = (
    "ETag",
    "Location",
    "Request-Id",
    "Retry-After",
    "X-Paceline-Instance",
    "X-Paceline-Profile",
    "X-Paceline-Route",
    "X-Request-Id",
    "X-Should-Retry",
)


def allow_pages(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Let pages of these origins in. It stands before the gate, since a preflight shows no key.

    A page needs a key as everybody does. Cookies mean nothing here, so browsers are not told to send them; which
    headers a page sends is its own affair.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=_METHODS,
        allow_headers=["*"],
        expose_headers=_READABLE,
    )
