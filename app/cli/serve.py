"""Running the service in this process."""

import logging

import uvicorn

from app.main import create_app
from app.settings import Settings


def serve(settings: Settings) -> None:
    """Serve until a signal ends it. Raises SettingsInvalid before anything is opened."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    # Its every request would be two lines, one of ours and one of the engine's.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    server(settings).run()


def server(settings: Settings) -> uvicorn.Server:
    """The one process that serves: its state lives in it, so there is never a second worker."""
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_config=None,
        # Streams that outlast the drain are cut: their engines end then too.
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    return uvicorn.Server(config)
