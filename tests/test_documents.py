"""The documents say what the code says. Only what a machine can compare is compared."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.event_feed import EventName
from app.cli.commands import command_line
from app.cli.demo.profiles import PROFILES
from app.cli.exit_codes import Exit
from app.cli.settings_text import settings_texts
from app.instances.diagnosis import DEGRADATIONS
from app.instances.diagnosis.ends import ENDS
from app.instances.state import InstanceState
from app.llama_server.environment import ALLOWED_NAMES, ALLOWED_PREFIXES
from app.llama_server.extra_args import ALLOWED, PATH_VALUED
from app.llama_server.log_lines import FailureReason
from app.metrics.catalogue import families, name_of, page
from app.profiles.presets import PRESETS
from app.profiles.profile import LaunchProfile, parse_profile
from app.profiles.yaml_documents import read_documents

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "app").rglob("*.md")])
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
FINDING_MAKERS = {"error", "warning", "info"}


def rows(text: str) -> list[list[str]]:
    """The cells of every table row."""
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:2] == "| "]


def first_cells(text: str = GUIDE) -> set[str]:
    """Every word in code marks in the first cell of a row, of the guide unless another text is given."""
    return {word for row in rows(text) for word in re.findall(r"`([^`]+)`", row[0])}


def rules_in_code(folder: str = "app") -> Iterator[str]:
    """The first argument of every call that makes a finding, and every degradation that is added to a set."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "tell") and node.args:
                yield from ids_of(node.args[0])
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            owner = getattr(node.func.value, "id", "")
            is_rule = owner == "findings" and node.func.attr in FINDING_MAKERS
            if is_rule or (owner == "degradations" and node.func.attr == "add"):
                yield from ids_of(node.args[0])


def ids_of(argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.Constant):
        yield argument.value
    elif isinstance(argument, ast.JoinedStr):
        # The one id that is put together says whose file it is about.
        yield from (f"{role}-unreadable" for role in ("target", "draft", "projector"))


@pytest.mark.parametrize("rule", sorted(set(rules_in_code())))
def test_every_rule_has_a_row(rule: str) -> None:
    assert rule in first_cells() | first_cells(OPERATIONS)


def section(heading: str) -> str:
    """One section of the operations page, up to the next heading."""
    return re.split(r"\n#+ ", OPERATIONS.split(f"# {heading}\n")[1])[0]


def reasons_in_code() -> Iterator[str]:
    """Why instances are said to end, where that is a word in the code."""
    places = {"Failure": 0, "_give_up": 1, "ask_to_stop": 1}
    for path in (ROOT / "app" / "instances").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                place = places.get(getattr(node.func, "id", "") or getattr(node.func, "attr", ""))
                if place is not None and len(node.args) > place:
                    yield from ids_of(node.args[place])


def test_the_operations_page_has_every_finding_at_run_time_every_end_and_nothing_else() -> None:
    found = set(rules_in_code("app/instances/diagnosis"))
    assert found >= DEGRADATIONS
    assert first_cells(section("Degradations")) == DEGRADATIONS
    assert first_cells(section("Advice")) == found - DEGRADATIONS
    assert {"load-timeout", "engine-not-started", *(reason.value for reason in FailureReason)} <= set(ENDS)
    assert set(reasons_in_code()) <= set(ENDS)
    assert first_cells(section("Reasons of an end")) == {*ENDS, "killed-by-signal-N"}
    assert first_cells(section("States")) == {state.value for state in InstanceState}


def test_the_guide_has_no_rules_that_are_gone() -> None:
    table = GUIDE.split("| rule | severity |")[1].split("\n\n")[0]
    assert {row[0].strip("`") for row in rows(table)} <= set(rules_in_code())


@pytest.mark.parametrize("setting", settings_texts(), ids=lambda setting: setting.variable)
def test_every_setting_has_a_row(setting: object) -> None:
    default = f"`{setting.default}`" if setting.default else ""  # type: ignore[attr-defined]
    row = f"| `{setting.variable}` | {default} | {setting.description} |"  # type: ignore[attr-defined]
    assert row in GUIDE.splitlines()


def test_every_flag_that_a_profile_may_add_is_listed_under_its_group_and_no_other() -> None:
    table = GUIDE.split("| group | flags |")[1].split("\n\n")[0]
    listed = {row[0]: re.findall(r"`([^`]+)`", row[1]) for row in rows(table)}
    assert listed == {group: list(flags) for group, flags in ALLOWED.items()}
    assert all(f"`{flag}`" in GUIDE for flag in PATH_VALUED)
    assert all(f"`{name}`" in GUIDE for name in (*ALLOWED_NAMES, *ALLOWED_PREFIXES))


def test_every_field_of_a_profile_is_told() -> None:
    table = GUIDE.split("### Fields")[1].split("### Presets")[0]
    told = {word.split(".")[-1] for word in re.findall(r"`([a-z_.]+)`", table)}

    def leaves(part: dict[str, object]) -> Iterator[str]:
        for name, value in part.items():
            if isinstance(value, dict) and value:
                yield from leaves(value)
            else:
                yield name

    whole = {"id": "x", "target": {"path": "x"}, "speculation": {"draft": {"path": "x"}}}
    assert set(leaves(parse_profile(whole).model_dump(mode="json"))) <= told
    assert set(LaunchProfile.model_fields) - {"target", "speculation", "placement", "context", "serving"} <= told


def test_every_preset_state_reason_and_exit_code_is_told() -> None:
    told = first_cells()
    assert {preset.id for preset in PRESETS} <= told
    assert {state.value for state in InstanceState} <= told
    assert {name.value for name in EventName} <= told
    assert {reason.value for reason in FailureReason} <= set(ENDS)
    assert all(f"{code.value} " in GUIDE.split("Exit codes:")[1].split("\n\n")[0] for code in Exit)


def test_the_page_of_metrics_is_up_to_date() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page(), "make metrics-page"


def test_documents_name_series_that_there_are() -> None:
    known = {name_of(family): family.type for family in families()}
    parts = {
        f"{name}_{part}" for name, kind in known.items() if kind == "histogram" for part in ("bucket", "count", "sum")
    }
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".yml", ".json")]
    for path in [*DOCUMENTS, *deployed]:
        named = set(re.findall(r"paceline_[a-z][a-z_]*[a-z](?![a-z_…])", path.read_text(encoding="utf-8")))
        assert named - known.keys() - parts == set(), path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_and_headings_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, heading = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), f"{target} in {path.name}"
        if heading:
            assert heading in anchors(linked.read_text(encoding="utf-8")), f"{target} in {path.name}"


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_examples_of_the_readme_are_what_the_service_takes() -> None:
    ids = {profile["id"] for profile in PROFILES}
    assert json.loads(README.split("-d '")[1].split("'\n")[0])["model"] in ids
    python = README.split("```python\n")[1].split("```")[0]
    ast.parse(python)
    assert set(re.findall(r'model="([^"]+)"', python)) <= ids
    for document in read_documents(README.split("```yaml\n")[1].split("```")[0]):
        parse_profile(document.data)


def test_every_command_is_told() -> None:
    commands = command_line()
    names = {command.name or getattr(command.callback, "__name__", "") for command in commands.registered_commands}
    names |= {group.name or "" for group in commands.registered_groups}
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`paceline {name}" not in GUIDE or f"`{name}`" not in changelog} == set()


def test_every_target_of_the_makefile_has_its_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(makefile.split(".PHONY:")[1].split("\n")[0].split())
    assert phony == set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
