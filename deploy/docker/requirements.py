"""Prints what pyproject.toml in this folder requires, with the extras that are named; of the demo its model alone.

So that an image can have a layer of the dependencies, which a change of the code leaves as it is.
"""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path


def requirements(extras: Sequence[str]) -> Sequence[str]:
    """The requirements, one a line of a requirements file. Raises SystemExit for an extra that there is not."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    known: dict[str, list[str]] = project["optional-dependencies"]
    for extra in extras:
        if extra not in known:
            raise SystemExit(f"pyproject.toml has no extra {extra!r}, it has {', '.join(known)}")
    required = [] if list(extras) == ["demo"] else list(project["dependencies"])
    required += [line for extra in extras for line in known[extra]]
    # An extra that stands on another names Paceline itself, which comes from this folder and not from a registry.
    return [line for line in required if not line.startswith(f"{project['name']}[")]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
