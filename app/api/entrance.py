"""The entrance: keys, origins and the gate, built from the settings and put before the application."""

from starlette.types import ASGIApp

from app.access.key_book import KeyBook
from app.access.keys import demand_keys, gatekeeper, may_be_without_keys
from app.access.origins import origin_guard
from app.access.refusals import Refusals
from app.api.cors import allow_pages
from app.api.gate import Gate
from app.database import Database
from app.proxy.relay import Relay
from app.settings import Settings


class Entrance:
    """The keys that there are, and who was refused."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self.book = KeyBook(
            database,
            configured=settings.read_admin_key(),
            metrics=settings.read_metrics_key(),
            may_be_empty=may_be_without_keys(settings),
        )
        self.refusals = Refusals()

    def load(self) -> None:
        """Read the keys. Raises SettingsInvalid where the service would be reachable beyond loopback without any."""
        self.book.load()
        demand_keys(self._settings, self.book)

    def before(self, app: ASGIApp, relay: Relay) -> ASGIApp:
        """What stands before both: nothing reaches the application, or the relay, that may not.

        Before the application, and not one of its middlewares: their layers cost a relayed request a tenth of its time.
        """
        gate = Gate(
            app,
            gatekeeper=gatekeeper(self._settings, self.book),
            guard=origin_guard(self._settings, asks_keys=lambda: not self.book.is_empty),
            refusals=self.refusals,
            relay=relay,
        )
        return allow_pages(gate, self._settings.cors_origins)
