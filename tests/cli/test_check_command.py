"""`paceline check -- llama-server …` and `--command-file`."""

import json
from pathlib import Path

import pytest
from cli.paceline_command import Outcome, paceline
from service import Service

from app.cli.exit_codes import Exit

GOOD = "-m dense.gguf -c 512 -np 1 -ngl 0 -t 1"


def check(service: Service, folder: Path, *arguments: str) -> Outcome:
    return paceline("check", *arguments, cwd=folder, settings={"PACELINE_URL": service.base_url})


def test_a_line_that_fits_is_explained_and_checked(service: Service, tmp_path: Path) -> None:
    line = f"llama-server {GOOD} --no-mmap --port 8080 --alias Tiny/Dense --jinja"
    checked = check(service, tmp_path, "--", *line.split())
    assert checked.code == Exit.DONE, checked.err
    lines = [text.rstrip() for text in checked.out.splitlines()]
    titles = [
        "  understood",
        "  not said, so llama-server decides",
        "  obsolete or wrong as written",
        "  Paceline decides",
    ]
    assert [text for text in lines if text in titles] == titles
    assert "refused" not in checked.out.split("dense: ")[0]
    assert any(text.split() == ["-c", "512", "context.size", "=", "512"] for text in lines)
    assert any("--no-mmap" in text and "extra_args: --load-mode none" in text for text in lines)
    assert any("--port 8080" in text and "PACELINE_PORT" in text for text in lines)
    assert any(text.startswith("dense: fits") for text in lines)
    assert "command:" in lines
    assert service.client.get("/profiles/dense").status_code == 404


def test_a_flag_that_is_refused_makes_the_line_refused(service: Service, tmp_path: Path) -> None:
    checked = check(service, tmp_path, "--", "llama-server", *GOOD.split(), "--tools", "all", "--ngl", "3")
    assert checked.code == Exit.REFUSED
    assert "  refused\n    --tools all  it opens files" in checked.out
    assert "\ndense: refused: --tools all\n" in checked.out
    assert "--ngl 3" in checked.out


def test_a_profile_that_is_refused_makes_the_line_refused(service: Service, tmp_path: Path) -> None:
    checked = check(
        service, tmp_path, "--", "llama-server", *GOOD.split(), "-md", "dspark.gguf", "--spec-type", "draft"
    )
    assert checked.code == Exit.REFUSED
    assert "error   draft-kind" in checked.out


def test_a_script_gives_a_report_for_each_of_its_servers(service: Service, tmp_path: Path) -> None:
    (tmp_path / "notes.sh").write_text(
        f"# mine\nllama-server {GOOD} \\\n  --temp 0 # cold\nllama-server {GOOD} -a two\n"
    )
    checked = check(service, tmp_path, "--command-file", "notes.sh")
    assert checked.code == Exit.DONE, checked.err
    assert checked.out.count("command:") == 2
    assert "two: fits" in checked.out


def test_json_has_profile_notes_and_report(service: Service, tmp_path: Path) -> None:
    checked = check(service, tmp_path, "--json", "--", "GGML_X=1", "./llama-server", *GOOD.split())
    document = json.loads(checked.out)
    assert document["profile"]["env"] == {"GGML_X": "1"}
    assert document["report"]["verdict"] != "refused"
    assert {note["kind"] for note in document["notes"]} == {"translated", "implied"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--", "llama-server", "-hf", "a/b"], "names no model file"),
        (["--", "ollama", "run", "x"], "no llama-server command"),
        (["--command-file", "absent.sh"], "cannot be read"),
        (["llama-server", "-m", "x.gguf"], "put -- before llama-server"),
        ([], "name one profile"),
        (["x", "--command-file", "absent.sh"], "name one profile"),
    ],
)
def test_what_is_no_command_line_is_an_error(service: Service, tmp_path: Path, arguments: list[str], said: str) -> None:
    checked = check(service, tmp_path, *arguments)
    assert checked.code == Exit.USAGE
    assert said in " ".join(checked.err.split())
    assert "Traceback" not in checked.err
