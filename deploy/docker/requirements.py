"""Prints what pyproject.toml in this folder requires: with no extra, with `engine`, or of the demo its model alone.

So that an image can have a layer of the dependencies, which a change of the code leaves as it is.
"""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path


def requirements(extra: str) -> Sequence[str]:
    """The requirements, one a line of a requirements file. Raises KeyError for an extra that there is not."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    if extra == "demo":
        return [line for line in extras["demo"] if not line.startswith(f"{project['name']}[")]
    return [*project["dependencies"], *(extras[extra] if extra else [])]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
