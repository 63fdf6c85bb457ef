"""The `paceline` command as its users run it: a process, with no settings of the developer."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def clean_environment(**settings: str) -> dict[str, str]:
    """Ours without its settings, and these."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")} | settings


def paceline(*arguments: str, cwd: Path, settings: Mapping[str, str] | None = None, seconds: float = 60) -> Outcome:
    """Run the command to its end in a folder of its own, where no .env file lies."""
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        cwd=cwd,
        env=clean_environment(**(settings or {})),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
