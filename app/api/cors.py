"""CORS: which web pages may read answers in a browser. None, unless the settings name them."""

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# What clients find out from headers of ours.
_READABLE = ("ETag", "Location", "Retry-After", "X-Request-Id", "X-Paceline-Profile", "X-Paceline-Instance")


def allow_pages(app: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of these origins in. Call it last: it stands before the gate, since a preflight shows no key.

    A page needs a key as everybody does. Cookies mean nothing here, so browsers are not told to send them; which
    headers a page sends is its own affair.
    """
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=_METHODS,
            allow_headers=["*"],
            expose_headers=_READABLE,
        )
