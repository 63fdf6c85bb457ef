"""A copy of a running service, and what a service has that is started on it, by the commands of the documentation."""

import re
import sqlite3
import subprocess
import sys
import tarfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from deploy.dockerfile import ROOT
from fixtures.tiny_models import TinyModels
from service import DEADLINE_SECONDS, eventually, running_service, settings_for, short_folder

DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")


def backup(archive: Path, *arguments: Path) -> "subprocess.CompletedProcess[str]":
    """As `docker compose exec` runs it: the program on standard input, the archive on standard output."""
    with (ROOT / "deploy" / "backup.py").open() as program, archive.open("wb") as out:
        return subprocess.run(
            [sys.executable, "-I", "-", *map(str, arguments)],
            stdin=program, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=DEADLINE_SECONDS,
        )  # fmt: skip


def put_back(archive: Path, folder: Path) -> None:
    """By the command that is documented for the container, with this folder in place of its own."""
    found = re.search(r"--entrypoint sh paceline -c '([^']+)' < paceline\.tar", DEPLOYMENT)
    assert found is not None
    assert "/data" in found[1]
    with archive.open("rb") as copy:
        subprocess.run(["/bin/sh", "-c", found[1].replace("/data", str(folder))], stdin=copy, check=True, timeout=30)


@pytest.mark.slow
def test_a_copy_of_a_running_service_has_all_that_was_told_each_once(tiny: TinyModels) -> None:
    """Earns that an operator gets everything back: requests, also those that no database had yet, profiles and keys."""
    with short_folder() as folder:
        archive, data, restored = folder / "paceline.tar", folder / "data", folder / "restored"
        settings = settings_for(folder, tiny.dense_target.parent, profiles_dir=data / "profiles")
        (data / "profiles").mkdir(parents=True)
        (data / "profiles" / "filed.yaml").write_text(f"id: filed\ntarget: {{path: {tiny.dense_target.name}}}\n")
        (data / "admin.key").write_text("secret")
        with running_service(settings) as service:
            service.add({"id": "kept", "target": {"path": tiny.dense_target.name}})
            instance = service.start("kept")
            answers = [service.complete("kept") for _ in range(2)]
            assert [service.row(answer)["outcome"] for answer in answers] == ["completed"] * 2
            with closing(sqlite3.connect(data / "paceline.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                answers += [service.complete("kept") for _ in range(2)]
                eventually(lambda: service.metric("paceline_telemetry_spilled_rows") == 2 or None)
                copied = backup(archive, data)
            assert copied.returncode == 0, copied.stderr
            assert "waiting for it: 2 rows" in copied.stderr
            assert not list(data.glob("backup-*"))
            later = service.complete("kept")
            service.row(later)
        # What another service left there, one that was killed, is not mixed into it.
        restored.mkdir()
        for name in ("paceline.db", "paceline.db-wal", "paceline.db-shm", "telemetry.spill"):
            (restored / name).write_bytes((data / "paceline.db").read_bytes()[:4096])
        put_back(archive, restored)
        assert {path.name for path in restored.iterdir()} == {
            "paceline.db", "telemetry.spill", "instances.spill", "profiles", "admin.key",
        }  # fmt: skip
        assert (restored / "paceline.db").stat().st_mode & 0o777 == 0o600
        assert (restored / "admin.key").read_text() == "secret"

        settings = settings_for(folder, tiny.dense_target.parent, data_dir=restored, profiles_dir=restored / "profiles")
        with running_service(settings) as service:
            assert {service.row(answer)["outcome"] for answer in answers} == {"completed"}
            listed = [row["id"] for row in service.client.get("/requests").json()["items"]]
            assert sorted(listed) == sorted(answer.headers["x-request-id"] for answer in answers)
            assert service.client.get(f"/requests/{later.headers['x-request-id']}").status_code == 404
            profiles = {item["id"] for item in service.client.get("/profiles").json()["items"]}
            assert profiles == {"kept", "filed"}
            earlier = service.instance(instance["id"])
            assert (earlier["state"], earlier["reason"]) == ("failed", "service-ended")
            assert service.client.get("/ready").json()["findings"] == []
            assert service.complete("kept").status_code == 200
        with closing(sqlite3.connect(restored / "paceline.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_copy_is_of_one_moment_however_much_is_written_meanwhile(tmp_path: Path) -> None:
    """`cp` would leave out what is not in the file itself yet, or tear it."""
    database, archive, is_enough = tmp_path / "elsewhere.db", tmp_path / "paceline.tar", threading.Event()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE filler AS SELECT randomblob(4000000) AS bytes")
        connection.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE b (id INTEGER PRIMARY KEY)")
        connection.execute("PRAGMA synchronous=OFF")

    def write() -> None:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            while not is_enough.is_set():
                other.executescript("BEGIN; INSERT INTO a DEFAULT VALUES; INSERT INTO b DEFAULT VALUES; COMMIT;")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copied = backup(archive, tmp_path, database)
    finally:
        is_enough.set()
        writer.join(DEADLINE_SECONDS)
    assert copied.returncode == 0, copied.stderr
    with tarfile.open(archive) as found:
        assert found.getnames() == ["paceline.db"]
        found.extractall(tmp_path / "copy", filter="data")
    with closing(sqlite3.connect(tmp_path / "copy" / "paceline.db")) as copy, closing(sqlite3.connect(database)) as now:
        in_a, in_b = copy.execute("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)").fetchone()
        assert in_a == in_b < now.execute("SELECT count(*) FROM a").fetchone()[0]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "unable to open"), (b"x" * 8192, "not a database")], ids=["none", "damaged"]
)
def test_what_cannot_be_copied_is_said_and_leaves_no_archive(tmp_path: Path, content: bytes | None, said: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if content is not None:
        (data / "paceline.db").write_bytes(content)
    copied = backup(tmp_path / "paceline.tar", data)
    assert copied.returncode == 1
    assert said in copied.stderr
    assert (tmp_path / "paceline.tar").stat().st_size == 0
    assert [path.name for path in data.iterdir()] == (["paceline.db"] if content else [])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a database that takes a while to be copied."""
    data = tmp_path / "data"
    data.mkdir()
    with closing(sqlite3.connect(data / "paceline.db")) as connection:
        connection.execute("CREATE TABLE filler AS SELECT randomblob(50000000) AS bytes")
    return data


def test_what_lies_elsewhere_behind_a_link_is_in_the_copy_itself(tmp_path: Path, data: Path) -> None:
    """A link to a place that another machine does not have would be no copy. Of those further in it is said."""
    elsewhere = tmp_path / "etc"
    (elsewhere / "profiles").mkdir(parents=True)
    (elsewhere / "profiles" / "filed.yaml").write_text("id: filed")
    (elsewhere / "profiles" / "linked.yaml").symlink_to("/nowhere/linked.yaml")
    (elsewhere / "key").write_text("secret")
    (data / "profiles").symlink_to(elsewhere / "profiles")
    (data / "admin.key").symlink_to(elsewhere / "key")
    copied = backup(tmp_path / "paceline.tar", data)
    assert copied.returncode == 0, copied.stderr
    assert "profiles/linked.yaml is a link: not in the copy is what it points at, /nowhere/linked.yaml" in copied.stderr
    with tarfile.open(tmp_path / "paceline.tar") as found:
        kinds = {member.name: member.type for member in found}
        key = found.extractfile("admin.key")
        assert key is not None
        assert key.read() == b"secret"
    assert kinds["profiles"] == tarfile.DIRTYPE
    assert kinds["profiles/filed.yaml"] == kinds["admin.key"] == tarfile.REGTYPE


def test_who_is_told_to_end_leaves_no_copy_of_the_database_behind(data: Path) -> None:
    with (ROOT / "deploy" / "backup.py").open() as program:
        command = [sys.executable, "-I", "-", str(data)]
        copying = subprocess.Popen(command, stdin=program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    # It waits for its reader, with the copy in the folder.
    eventually(lambda: list(data.glob("backup-*/paceline.db")) or None)
    copying.terminate()
    copying.communicate(timeout=DEADLINE_SECONDS)
    assert copying.returncode == 1
    assert [path.name for path in data.iterdir()] == ["paceline.db"]
