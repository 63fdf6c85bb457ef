"""Running the service in this process."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from app.cli.http_protocol import HttpProtocol
from app.cli.server import ServiceServer
from app.cli.startup import StartupWatch
from app.errors import PacelineError
from app.main import create_app
from app.proxy.asgi import AnswerCut
from app.settings import Settings

# While another thread computes, the event loop waits so long for the interpreter with every event it has to pass on,
# not once for all. Python's five milliseconds would let eight streams stand still beside a question to /stats.
SWITCH_SECONDS = 0.0002


class ServiceNotStarted(PacelineError):
    """The service did not come up; the log above says why."""

    code = "service-not-started"


def serve(settings: Settings) -> None:
    """Serve until a signal ends it. Raises SettingsInvalid before anything is opened, and what stopped the start."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    sys.setswitchinterval(SWITCH_SECONDS)
    # Its every request would be two lines, one of ours and one of the engine's.
    for library in ("httpx", "httpcore"):
        logging.getLogger(library).setLevel(logging.WARNING)
    app = create_app(settings)
    watched = StartupWatch(app.asgi)
    # A terminal that closes is a reason to stop in order, too.
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        _server_of(watched, settings, app.end_streams).run()
    except KeyboardInterrupt:
        # The server has stopped in order, and repeats the signal for whoever wants to know.
        return
    except SystemExit as end:
        raise watched.failure or ServiceNotStarted(
            f"the service did not come up on {settings.host} port {settings.port}; the log above says why"
        ) from end


def server(settings: Settings) -> uvicorn.Server:
    """The one process that serves: its state lives in it, so there is never a second worker."""
    app = create_app(settings)
    return _server_of(app.asgi, settings, app.end_streams)


def _server_of(app: ASGIApp, settings: Settings, end_streams: Callable[[], None]) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        access_log=False,
        # Whoever is on this machine could say to be somebody else, and try keys without being slowed.
        proxy_headers=False,
        log_config=None,
        # Streams that outlast the drain are cut: their engines end then too.
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    # After the Config, which sets loggers up.
    logging.getLogger("uvicorn.error").addFilter(is_no_cut)
    return ServiceServer(config, end_streams)


def is_no_cut(record: logging.LogRecord) -> bool:
    """Whether a line of the server's log is other than that an answer was cut: its request is recorded as such.

    To be cancelled is what the end of the drain does, and the server says so.
    """
    return record.exc_info is None or not isinstance(record.exc_info[1], AnswerCut | asyncio.CancelledError)
