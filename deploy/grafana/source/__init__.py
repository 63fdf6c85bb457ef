"""The dashboards as code: `python -m deploy.grafana.source` writes their JSON."""

from collections.abc import Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from .placement import placement
from .serving import serving
from .speculation import speculation


def dashboards() -> Mapping[str, str]:
    """The JSON of each, by the name of its file."""
    boards = {"speculation": speculation(), "serving": serving(), "placement": placement()}
    return {f"{name}.json": _text(board.build()) for name, board in boards.items()}


def _text(board: Dashboard) -> str:
    # Grafana would number those that have no number anew at each load, and links to one panel would lead elsewhere.
    for number, panel in enumerate(board.panels or (), 1):
        panel.id_val = number
    return JSONEncoder(indent=2, sort_keys=True).encode(board) + "\n"
