"""Writes the dashboards that Grafana is provisioned with."""

from pathlib import Path

from . import dashboards

FOLDER = Path(__file__).parent.parent / "dashboards"

if __name__ == "__main__":
    for name, text in dashboards().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
