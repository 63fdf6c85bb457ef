"""The start of the service: one that fails tells its reason, one that works settles."""

import gc

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import PacelineError

# Of requests nearly nothing is left that only a collection finds, and each looks at all that is in flight.
_GC_THRESHOLDS = (10_000, 20, 20)


def _settle() -> None:
    """What is there now stays: a collection need not look at it again, and collections are rarer from now on.

    Under load a full one came every few thousand requests and held all streams up for a tenth of a second; the short
    ones took a twentieth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


class StartupWatch:
    """ASGI wrapper that keeps the named error of a start that failed; others pass with their traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: PacelineError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; only the lifespan is looked at."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        complaints: list[Message] = []

        async def hold_complaints(message: Message) -> None:
            # The traceback comes as a message before the exception itself does.
            if message["type"] == "lifespan.startup.failed":
                complaints.append(message)
                return
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                _settle()

        try:
            await self._app(scope, receive, hold_complaints)
        except PacelineError as failure:
            self.failure = failure
            await send({"type": "lifespan.startup.failed", "message": ""})
        except BaseException:
            for message in complaints:
                await send(message)
            raise
