"""Writes the dashboards that Grafana is provisioned with, and the page that draws them."""

from pathlib import Path

from . import dashboards
from .page import page

FOLDER = Path(__file__).parent.parent / "dashboards"
PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "dashboards.md"

if __name__ == "__main__":
    written = dashboards()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    PAGE.write_text(page(written), encoding="utf-8")
