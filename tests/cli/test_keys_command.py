import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from cli.paceline_command import Outcome, paceline
from fixtures.tiny_models import TinyModels
from rich.console import Console
from service import Service, running_service, settings_for

from app.cli.exit_codes import Exit
from app.cli.keys import keys_table


@pytest.fixture
def fresh(tiny: TinyModels, tmp_path: Path) -> Iterator[Service]:
    """A service without any key."""
    with running_service(settings_for(tmp_path, tiny.dense_target.parent)) as running:
        yield running


def keys(service: Service, folder: Path, *arguments: str, key: str = "") -> Outcome:
    settings = {"PACELINE_URL": service.base_url} | ({"PACELINE_ADMIN_KEY": key} if key else {})
    return paceline("keys", *arguments, cwd=folder, settings=settings)


def status_with(service: Service, path: str, key: str) -> int:
    return httpx.get(f"{service.base_url}{path}", headers={"x-api-key": key}, trust_env=False).status_code


def test_from_the_first_key_to_the_last(fresh: Service, tmp_path: Path) -> None:
    fresh.add({"id": "tiny", "target": {"path": "dense.gguf"}})
    assert "there are no keys" in keys(fresh, tmp_path, "list").out

    too_early = keys(fresh, tmp_path, "make", "web")
    assert too_early.code == Exit.REFUSED
    assert "make an admin key first" in too_early.err

    made = keys(fresh, tmp_path, "make", "laptop", "--admin")
    assert made.code == Exit.DONE
    admin = made.out.removesuffix("\n")
    assert admin.startswith("pl_")
    assert "not shown again" in made.err
    assert admin not in made.err

    # It counts at once: without it nothing opens any more.
    without = keys(fresh, tmp_path, "list")
    assert (without.code, without.out) == (Exit.REFUSED, "")
    assert "set PACELINE_ADMIN_KEY" in without.err

    limited = keys(fresh, tmp_path, "make", "web", "--profile", "tiny", "--days", "30", "--json", key=admin)
    document = json.loads(limited.out)
    assert (document["kind"], document["profiles"]) == ("inference", ["tiny"])
    assert status_with(fresh, "/v1/models", document["secret"]) == 200
    assert status_with(fresh, "/profiles", document["secret"]) == 403

    listed = keys(fresh, tmp_path, "list", key=admin)
    rows = [line.split() for line in listed.out.splitlines()]
    assert rows[1][:4] == ["laptop", "everything", "all", "never"]
    assert rows[2][:3] == ["web", "inference", "tiny"]
    assert document["secret"] not in listed.out
    assert [key["name"] for key in json.loads(keys(fresh, tmp_path, "list", "--json", key=admin).out)] == [
        "laptop",
        "web",
    ]

    assert keys(fresh, tmp_path, "revoke", "laptop", key=admin).code == Exit.REFUSED
    assert keys(fresh, tmp_path, "revoke", "web", key=admin).out == "web is revoked\n"
    assert status_with(fresh, "/v1/models", document["secret"]) == 401
    assert keys(fresh, tmp_path, "revoke", "laptop", key=admin).code == Exit.DONE
    assert "there are no keys" in keys(fresh, tmp_path, "list").out


def test_what_is_refused_is_one_sentence(fresh: Service, tmp_path: Path) -> None:
    admin = keys(fresh, tmp_path, "make", "laptop", "--admin").out.strip()
    assert "profile" in keys(fresh, tmp_path, "make", "web", "--profile", "none", key=admin).err
    assert keys(fresh, tmp_path, "make", "web", "--days", "0", key=admin).code == Exit.USAGE
    unknown = keys(fresh, tmp_path, "revoke", "../laptop", key=admin)
    assert unknown.code == Exit.REFUSED
    wrong = keys(fresh, tmp_path, "list", key="wrong")
    assert wrong.err == (
        "paceline: the key is not known: PACELINE_ADMIN_KEY (or PACELINE_ADMIN_KEY_FILE) here is not the service's\n"
    )


def test_a_key_for_metrics_reads_metrics(fresh: Service, tmp_path: Path) -> None:
    admin = keys(fresh, tmp_path, "make", "laptop", "--admin").out.strip()
    metrics = keys(fresh, tmp_path, "make", "prometheus", "--metrics", key=admin).out.strip()
    assert status_with(fresh, "/metrics", metrics) == 200
    assert status_with(fresh, "/profiles", metrics) == 403
    rows = [line.split() for line in keys(fresh, tmp_path, "list", key=admin).out.splitlines()]
    assert rows[2][:3] == ["prometheus", "metrics", "-"]
    assert keys(fresh, tmp_path, "make", "both", "--metrics", "--admin", key=admin).code == Exit.USAGE


def test_a_key_goes_into_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "admin.key"
    first = paceline("keys", "file", str(path), cwd=tmp_path)
    assert (first.code, first.out) == (Exit.DONE, "")
    key = path.read_text(encoding="utf-8").strip()
    assert "a new key" in first.err
    assert key not in first.err
    assert "there already" in paceline("keys", "file", str(path), "--group", cwd=tmp_path).err
    assert path.read_text(encoding="utf-8").strip() == key
    nowhere = paceline("keys", "file", "/proc/admin.key", cwd=tmp_path)
    assert nowhere.code == Exit.REFUSED
    assert "no key can be put into" in nowhere.err


def test_a_key_that_has_expired_is_listed_as_such() -> None:
    expiring = {
        "name": "web",
        "kind": "inference",
        "profiles": ["a", "b"],
        "expires_at": "2026-05-01T12:00:00Z",
        "last_used_at": "2026-04-30T12:00:00Z",
    }
    console = Console(width=120, file=io.StringIO(), record=True)
    for day in (1, 2):
        console.print(keys_table([expiring], datetime(2026, 5, day, 11, tzinfo=UTC)))
    before, after = [line for line in console.export_text().splitlines() if line.startswith("web")]
    assert "expired" not in before
    assert "a, b" in before
    assert "expired 2026-05-0" in after
