"""Running the service in this process."""

import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from app.cli.http_protocol import HttpProtocol
from app.cli.server import ServiceServer
from app.cli.startup import StartupWatch
from app.errors import PacelineError
from app.main import create_app
from app.settings import Settings


class ServiceNotStarted(PacelineError):
    """The service did not come up; the log above says why."""

    code = "service-not-started"


def serve(settings: Settings) -> None:
    """Serve until a signal ends it. Raises SettingsInvalid before anything is opened, and what stopped the start."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    # Its every request would be two lines, one of ours and one of the engine's.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    app = create_app(settings)
    watched = StartupWatch(app)
    # A terminal that closes is a reason to stop in order, too.
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        _server_of(watched, settings, _end_streams(app.state)).run()
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
    return _server_of(app, settings, _end_streams(app.state))


def _end_streams(state: Any) -> Callable[[], None]:
    """What the application has for ending the answers that go on for ever."""
    end_streams: Callable[[], None] = getattr(state, "end_streams", lambda: None)
    return end_streams


def _server_of(app: ASGIApp, settings: Settings, end_streams: Callable[[], None]) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=HttpProtocol,
        ws="none",
        access_log=False,
        log_config=None,
        # Streams that outlast the drain are cut: their engines end then too.
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    return ServiceServer(config, end_streams)
