"""The house's rules that a reader cannot be asked to check by eye: DESIGN in ARCHITECTURE.md says why each holds."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

APP = Path(__file__).parent.parent / "app"
ORDER = (
    "errors near_names settings identifiers events feed findings data_folder line_file sqlite_file database "
    "speculative profiles inventory placement llama_server launch instances proxy telemetry metrics tuner access api "
    "web windows series parts ending main cli"
).split()
FILES = sorted(path for path in APP.rglob("*.py") if path != APP / "__init__.py")
IO_MODULES = {"asyncio", "httpx", "logging", "os", "pathlib", "socket", "subprocess", "threading", "time", "random"}
PURE = tuple(
    (
        "speculative placement llama_server/flags.py llama_server/timings.py llama_server/answer "
        "llama_server/log_lines.py "
        "llama_server/help_text.py llama_server/environment.py llama_server/extra_args.py llama_server/rules.py "
        "llama_server/extra_rules.py llama_server/adapter_rules.py llama_server/breakdown.py "
        "llama_server/dry_run_output.py llama_server/memory_options.py llama_server/command_ "
        "llama_server/shell_text.py launch/witness.py launch/reconcile.py launch/planning.py proxy/sse.py "
        "proxy/endpoints.py proxy/passage.py proxy/kept.py proxy/model_list.py "
        "proxy/routing.py proxy/assembly proxy/auto.py proxy/categories.py proxy/body_filters.py instances/state.py "
        "instances/restart.py instances/residency.py instances/line.py instances/diagnosis "
        "instances/measured.py llama_server/load_ llama_server/log_noise.py llama_server/counters.py"
    ).split()
)
# `flags` and the rules name paths as values; they never open one.
PATH_VALUES = {"llama_server/flags.py", "placement/case.py", "placement/resolve.py"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "app":
                yield from (f"app.{name.name}" for name in node.names)


def place(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def relative(path: Path) -> str:
    return path.relative_to(APP).as_posix()


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_folder_order_is_import_order(path: Path) -> None:
    own = relative(path).split("/")[0].removesuffix(".py")
    known = [place(module) for module in imports(path) if module.startswith("app.")]
    late = [name for name in known if name in ORDER and ORDER.index(name) > ORDER.index(own)]
    assert not late, f"{own} comes before {late}"


def test_every_folder_has_its_place_in_the_order() -> None:
    assert {relative(path).split("/")[0].removesuffix(".py") for path in FILES} <= set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_only_the_owner_uses_a_library(path: Path) -> None:
    name, used = relative(path), {module.split(".")[0] for module in imports(path)}
    if name.split("/")[0] not in {"api", "web", "main.py"}:
        assert not used & {"fastapi"}
    if name != "inventory/nvml.py":
        assert "pynvml" not in used
    if not name.startswith("llama_server/embedded"):
        assert "xllamacpp" not in used


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_only_two_places_start_programs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    starts = [word for word in ("create_subprocess", "subprocess.Popen", "subprocess.run", "os.exec") if word in text]
    allowed = {"instances/process.py", "instances/tether.py", "llama_server/probe.py", "cli/demo.py"}
    assert not starts or relative(path) in allowed or relative(path).startswith("cli/demo")


@pytest.mark.parametrize("path", [path for path in FILES if relative(path).startswith(PURE)], ids=relative)
def test_the_core_is_pure(path: Path) -> None:
    used = {module.split(".")[0] for module in imports(path)} & IO_MODULES
    if relative(path) in PATH_VALUES:
        used -= {"pathlib"}
    assert not used


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_tables_live_in_files_of_that_name(path: Path) -> None:
    assert "table=True" not in path.read_text(encoding="utf-8") or path.name == "tables.py"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_file_is_two_nouns(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
