"""Writes the demo's model, its profiles and what to know of it: `demo_files.py FOLDER`."""

import sys
from pathlib import Path

import yaml

from app.cli.demo.model import NOTICE, ensure_model
from app.cli.demo.profiles import PROFILES
from app.cli.render import make_console


def main(folder: Path) -> None:
    """Fill `folder` with models/, profiles/ and NOTICE."""
    models, profiles = folder / "models", folder / "profiles"
    for made in (models, profiles):
        made.mkdir(parents=True)
    ensure_model(make_console(), models)
    for profile in PROFILES:
        text = yaml.safe_dump(dict(profile), sort_keys=False, allow_unicode=True)
        (profiles / f"{profile['id']}.yaml").write_text(text, encoding="utf-8")
    (folder / "NOTICE").write_text(NOTICE, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
