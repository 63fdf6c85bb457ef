import json
import socket
from pathlib import Path

import pytest
from cli.paceline_command import ROOT, Outcome, paceline
from fixtures.tiny_models import TinyModels
from service import Service, running_service, settings_for

from app.cli.exit_codes import Exit

DENSE = {"target": {"path": "dense.gguf"}, "context": {"threads": 1}}
WITH_DRAFT = {**DENSE, "speculation": {"method": "draft", "draft": {"path": "draft-wrong.gguf"}}}
WRONG_DRAFT = {**DENSE, "speculation": {"method": "draft", "draft": {"path": "dspark.gguf"}}}


def at(service: Service, folder: Path, *arguments: str) -> Outcome:
    return paceline(*arguments, cwd=folder, settings={"PACELINE_URL": service.base_url})


def test_a_profile_is_started_shown_read_and_stopped(service: Service, tmp_path: Path) -> None:
    service.add({"id": "whole-way", **WITH_DRAFT})

    started = at(service, tmp_path, "start", "whole-way")
    assert started.code == Exit.DONE
    assert "whole-way is ready after" in started.out
    assert service.state("whole-way") == "ready"

    status = at(service, tmp_path, "status")
    assert status.code == Exit.DONE
    assert "engine embedded" in status.out
    assert any(line.split()[:3] == ["whole-way", "ready", "draft"] for line in status.out.splitlines())

    logs = at(service, tmp_path, "logs", "whole-way", "--tail", "2")
    assert len(logs.out.splitlines()) == 2

    stopped = at(service, tmp_path, "stop", "whole-way", "--drain", "0")
    assert stopped.code == Exit.DONE
    assert service.state("whole-way") == "stopped"


def test_start_without_waiting_answers_before_it_is_ready(service: Service, tmp_path: Path) -> None:
    service.add({"id": "not-waited", **DENSE})
    started = at(service, tmp_path, "start", "not-waited", "--no-wait")
    assert started.code == Exit.DONE
    assert "not-waited is starting" in started.out
    assert "None" not in started.out
    service.stop("not-waited")


def test_a_refused_check_prints_findings_fixes_and_command(service: Service, tmp_path: Path) -> None:
    service.add({"id": "refused", **WRONG_DRAFT})
    checked = at(service, tmp_path, "check", "refused")
    assert checked.code == Exit.REFUSED
    assert checked.out.startswith("refused: refused\n")
    assert "error   draft-kind" in checked.out
    assert 'fix: Use the method the file is for: dspark: {"speculation": {"method": "dspark"}}' in checked.out
    assert "--spec-draft-model" in checked.out.split("command:\n")[1]


def test_a_refused_start_prints_the_same_findings(service: Service, tmp_path: Path) -> None:
    service.add({"id": "not-started", **WRONG_DRAFT})
    started = at(service, tmp_path, "start", "not-started")
    assert started.code == Exit.REFUSED
    assert started.err.startswith("paceline: profile 'not-started' is not launched\n")
    assert "error   draft-kind" in started.err


def test_a_profile_file_is_checked_without_being_stored(service: Service, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("id: one\ntarget: {path: dense.gguf}\n---\nid: two\ntarget: {path: gone.gguf}\n")
    checked = at(service, tmp_path, "check", "two.yaml")
    assert checked.code == Exit.REFUSED
    assert checked.out.count("command:") == 2
    assert "target-unreadable" in checked.out
    assert service.client.get("/profiles/one").status_code == 404

    (tmp_path / "one.json").write_text(json.dumps({"id": "one", **DENSE}))
    as_json = at(service, tmp_path, "check", "one.json", "--json")
    assert as_json.code == Exit.DONE
    assert json.loads(as_json.out)["verdict"] != "refused"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id: [", "p.yaml:1: not valid YAML"),
        ("", "p.yaml holds no profile"),
        ("id: x\ntarget: {path: a.gguf}\nthreads: 2\n", "paceline: p.yaml:3: threads: unknown field\n"),
        ("target: {path: a.gguf}\nid: 7\n", "p.yaml:2: id: Input should be a valid string: put it in quotes\n"),
    ],
)
def test_a_bad_profile_file_is_named(service: Service, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    checked = at(service, tmp_path, "check", "p.yaml")
    assert checked.code == Exit.USAGE
    assert checked.err.count(said) == 1
    assert checked.err.count("unknown field") <= 1
    assert "Traceback" not in checked.err


@pytest.mark.parametrize("command", ["start", "stop", "logs"])
def test_a_file_where_an_id_is_meant_is_told_where_it_goes(tmp_path: Path, command: str) -> None:
    asked = paceline(command, "../g.yaml", cwd=tmp_path, settings={"PACELINE_PROFILES_DIR": "/here"})
    assert asked.code == Exit.USAGE
    said = f"{command} takes an id: put the file into /here, and {command} the id in it"
    assert said in " ".join(asked.err.split())


def test_an_id_with_characters_of_urls_is_no_other_address(service: Service, tmp_path: Path) -> None:
    assert 'there is no profile "a?b#c d"' in at(service, tmp_path, "check", "a?b#c d").err


def test_a_model_where_a_profile_is_meant_names_the_commands_for_it(service: Service, tmp_path: Path) -> None:
    asked = at(service, tmp_path, "check", "dense.gguf")
    assert asked.code == Exit.USAGE
    assert "`paceline suggest dense.gguf`" in asked.err


def test_a_check_for_another_machine(service: Service, tmp_path: Path) -> None:
    service.add({"id": "elsewhere", **DENSE})
    (tmp_path / "one.yaml").write_text("id: one\ntarget: {path: dense.gguf}\n")
    machine = ("--machine", str(ROOT / "deploy" / "machines" / "2x24gb.json"))
    for asked in (["elsewhere"], ["one.yaml"], ["--", "llama-server", "-m", "dense.gguf"]):
        assert "\nCUDA1 [" in at(service, tmp_path, "check", *machine, *asked).out
        assert "\nCUDA1 [" not in at(service, tmp_path, "check", *asked).out
    assert "\nCUDA1 [" in at(service, tmp_path, "suggest", *machine, "dense.gguf").out


@pytest.mark.parametrize(("text", "said"), [(None, "cannot be read"), ("{", "cannot be read"), ("[]", "is no machine")])
def test_what_is_no_machine_is_an_error(service: Service, tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "machine.json").write_text(text)
    asked = at(service, tmp_path, "check", "--machine", "machine.json", "any")
    assert asked.code == Exit.USAGE
    assert said in " ".join(asked.err.split())


def test_a_check_without_an_answer_is_told_from_a_refusal(service: Service, tmp_path: Path) -> None:
    unknown = at(service, tmp_path, "check", "nobody")
    assert unknown.code == Exit.USAGE
    assert 'there is no profile "nobody"' in unknown.err
    nowhere = paceline("check", "x", cwd=tmp_path, settings={"PACELINE_URL": "http://127.0.0.1:9"})
    assert nowhere.code == Exit.USAGE
    assert "no Paceline answers" in nowhere.err
    not_set = paceline("check", "x", cwd=tmp_path, settings={"PACELINE_PORT": "ninety"})
    assert not_set.code == Exit.USAGE


def test_a_problem_is_its_sentence_and_its_members(service: Service, tmp_path: Path) -> None:
    started = at(service, tmp_path, "start", "nobody")
    assert started.code == Exit.REFUSED
    assert 'there is no profile "nobody"' in started.err
    assert "profile_id: nobody" in started.err


def test_a_model_that_does_not_load_ends_with_the_engines_words(service: Service, tmp_path: Path) -> None:
    service.add({"id": "no-context", **DENSE, "extra_args": ["--chat-template", "{% broken"]})
    started = at(service, tmp_path, "start", "no-context")
    assert started.code == Exit.REFUSED
    assert "no-context failed:" in started.out
    assert "the engine's last lines:" in started.out


def test_status_shows_what_is_wrong_with_profile_files(tiny_folder: Path, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, tiny_folder)
    (settings.profiles_folder / "bad.yaml").write_text("id: bad\ntarget: {path: dense.gguf}\nthreads: 2\n")
    with running_service(settings) as service:
        status = at(service, tmp_path, "status")
        assert "profile file bad.yaml:3: threads: unknown field" in status.out
        assert json.loads(at(service, tmp_path, "status", "--json").out)["ready"]["profile_files"]


def test_the_key_of_the_settings_is_shown(tiny_folder: Path, tmp_path: Path) -> None:
    with running_service(settings_for(tmp_path, tiny_folder, admin_key="secret")) as service:
        without = at(service, tmp_path, "status")
        assert without.code == Exit.REFUSED
        assert (
            without.err
            == "paceline: a key is needed: set PACELINE_ADMIN_KEY to the service's, here or in a .env file\n"
        )
        wrong = {"PACELINE_URL": service.base_url, "PACELINE_ADMIN_KEY": "other"}
        assert "PACELINE_ADMIN_KEY" in paceline("status", cwd=tmp_path, settings=wrong).err
        settings = {"PACELINE_URL": service.base_url, "PACELINE_ADMIN_KEY": "secret"}
        assert paceline("status", cwd=tmp_path, settings=settings).code == Exit.DONE


def test_no_service_says_how_to_start_one(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        asked = paceline("status", cwd=tmp_path, settings={"PACELINE_PORT": str(port)})
    assert asked.code == Exit.UNREACHABLE
    assert f"no Paceline answers at http://127.0.0.1:{port}" in asked.err
    assert "paceline serve" in asked.err


def test_wrong_settings_are_one_line_and_their_own_code(tmp_path: Path) -> None:
    for arguments in (("serve",), ("status",)):
        ended = paceline(*arguments, cwd=tmp_path, settings={"PACELINE_PORT": "ninety"})
        assert ended.code == Exit.USAGE
        assert ended.err.startswith("paceline: PACELINE_PORT: ")
        assert ended.err.count("\n") == 1


@pytest.fixture(scope="module")
def tiny_folder(tiny: TinyModels) -> Path:
    return tiny.dense_target.parent
