"""Every flag of the embedded engine's table is set on a running server and read back from it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xllamacpp
from fixtures.embedded_effects import EFFECTS
from fixtures.embedded_launches import Files, Launch, at_path, write_files

from app.llama_server.embedded.__main__ import defaults
from app.llama_server.embedded.command_line import parse, put
from app.llama_server.embedded.flag import (
    Effect,
    Flag,
    Generation,
    Log,
    Models,
    NoLog,
    OnlyParams,
    Props,
    Slots,
)
from app.llama_server.embedded.flag_table import FLAGS, REFUSED

Server = Callable[..., Launch]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_files(tmp_path_factory.mktemp("embedded"))


@pytest.fixture(scope="module")
def server(files: Files) -> Iterator[Server]:
    """A server of each group, started when it is first asked for."""
    launches: dict[tuple[str, bool], Launch] = {}

    def launch(group: str, *, with_flags: bool = True) -> Launch:
        key = (group, with_flags)
        if key not in launches:
            launches[key] = Launch(group, files, with_flags=with_flags)
        return launches[key]

    yield launch
    for each in launches.values():
        each.close()


def rows(*kinds: type) -> list[Any]:
    return [pytest.param(flag, id=flag.names[0]) for flag in FLAGS if isinstance(flag.seen, kinds)]


@pytest.mark.parametrize("flag", rows(Generation, Props, Models, Slots))
def test_value_is_answered(flag: Flag, server: Server, files: Files) -> None:
    launch = server(flag.launch)
    assert launch.is_loaded, launch.engine.log
    match flag.seen:
        case Generation(path, value):
            answered = at_path(launch.generation, path)
        case Props(path, value):
            answered = at_path(launch.props, path)
        case Models(path, value):
            answered = at_path(launch.get("/v1/models").json["data"][0], path)
        case Slots(path, value):
            answered = at_path(launch.get("/slots").json[0], path)
        case _:
            raise AssertionError(flag.seen)
    assert answered == (files.fill(value) if isinstance(value, str) else value)


@pytest.mark.parametrize("flag", rows(Effect))
def test_effect_is_observed(flag: Flag, server: Server) -> None:
    assert isinstance(flag.seen, Effect)
    EFFECTS[flag.seen.name](server(flag.launch))


@pytest.mark.parametrize("flag", rows(Log, NoLog))
def test_log_tells_the_value(flag: Flag, server: Server, files: Files) -> None:
    assert isinstance(flag.seen, Log | NoLog)
    pattern = files.fill(flag.seen.pattern)
    with_flag = re.search(pattern, server(flag.launch).log_after_requests)
    without = re.search(pattern, server(flag.launch, with_flags=False).log_after_requests)
    assert (bool(with_flag), bool(without)) == ((True, False) if isinstance(flag.seen, Log) else (False, True))


def scalars(holder: Any, prefix: str = "") -> dict[str, str]:
    """Every parameter as text, by its dotted name."""
    found: dict[str, str] = {}
    for name in (name for name in dir(holder) if not name.startswith("_")):
        value = getattr(holder, name)
        if callable(value):
            continue
        if type(value).__module__.startswith("xllamacpp") and not isinstance(value, int):
            found |= scalars(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and not isinstance(value[0], int | float | str):
            found[prefix + name] = repr([getattr(item, "path", item) for item in value])
        else:
            found[prefix + name] = repr(value)
    return found


@pytest.mark.parametrize("flag", [row for row in FLAGS if "an unknown device" not in str(row.seen)],
                         ids=lambda flag: flag.names[0])  # fmt: skip
def test_parameters_change(flag: Flag, files: Files) -> None:
    """Holds the rows that no server shows; a device that does not exist cannot be put."""
    plain, changed = defaults(xllamacpp), defaults(xllamacpp)
    put(parse([files.fill(word) for word in flag.example], {}), changed)
    assert scalars(changed) != scalars(plain)


def test_rows_that_no_server_shows_say_why() -> None:
    unseen = [flag for flag in FLAGS if isinstance(flag.seen, OnlyParams)]
    assert all(flag.seen.reason for flag in unseen if isinstance(flag.seen, OnlyParams))
    assert len(unseen) < len(FLAGS) / 3


def test_every_spelling_is_listed_once() -> None:
    spellings = [name for flag in FLAGS for name in (*flag.names, *flag.off)]
    spellings += [name for refused in REFUSED for name in refused.names]
    assert len(spellings) == len(set(spellings))


def test_every_flag_of_the_real_engine_is_known() -> None:
    """`help_11434.txt` is what `llama-server --help` of build 11434 prints."""
    text = Path(__file__).parents[1].joinpath("fixtures/help_11434.txt").read_text()
    heads = [line[:200] for line in text.splitlines() if line.startswith("-") and not line.startswith("-----")]
    real = {name for head in heads for name in re.findall(r"(?:^|, +)(-{1,2}[A-Za-z][\w.-]*)", head)}
    real -= {"-h", "--help", "--usage", "--version", "--list-devices"}
    ours = {name for flag in FLAGS for name in (*flag.names, *flag.off)}
    assert real - ours == {name for refused in REFUSED for name in refused.names}
    assert ours - real == {"--moe-cache-mib"}
