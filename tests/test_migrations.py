"""Migrations are the only creators of tables: from nothing, from every older revision, and in step with the models."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlmodel import SQLModel

from app.database import MIGRATIONS, Database, migration_connection
from app.errors import DatabaseUnavailable

ROOT = MIGRATIONS.parent

# Rows that each revision brought; every later revision has to keep them.
ROWS = {
    "0001": [
        "INSERT INTO profile VALUES ('kept', 2, 'a.yaml', 1000, NULL)",
        """INSERT INTO profile_revision VALUES ('kept', 1, '{"id": "kept"}', 1000)""",
        """INSERT INTO profile_revision VALUES ('kept', 2, '{"id": "kept", "tags": []}', 2000)""",
    ],
    "0003": ["INSERT INTO instance VALUES (7, 'kept', 2, 'stopped', 1000, 2000, '{}')"],
    "0004": ["INSERT INTO calibration VALUES ('kept', 2, 'b1', 'CUDA0', 'CUDA0', 'compute', 5)"],
    "0005": ["INSERT INTO access_key VALUES ('boss', '0a', 'admin', 'ff', NULL, 1000, NULL, NULL)"],
    "0006": [
        "INSERT INTO launch_context VALUES (1, 'kept', 2, 'b1', 'ff', 'CUDA0', 'draft')",
        "INSERT INTO acceptance_window VALUES (7, 1, 7, 1000, 2000, 10, 28, 21, '[9,8,4]', 32, 2713, 1)",
    ],
}


def config_at(connection: object = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


REVISIONS = [script.revision for script in reversed(list(ScriptDirectory.from_config(config_at()).walk_revisions()))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "paceline.db"


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{file}")
    yield database
    database.close()


def upgrade_to(file: Path, revision: str) -> None:
    with migration_connection(f"sqlite:///{file}") as connection:
        command.upgrade(config_at(connection), revision)


def test_from_nothing_to_the_newest(database: Database, file: Path) -> None:
    database.migrate()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[-1],)]
        assert connection.execute("SELECT count(*) FROM profile").fetchone() == (0,)


def test_migrating_again_changes_nothing(database: Database, file: Path) -> None:
    database.migrate()
    before = file.read_bytes()
    database.migrate()
    assert file.read_bytes() == before


def test_revisions_are_one_line() -> None:
    assert len(ScriptDirectory.from_config(config_at()).get_heads()) == 1


@pytest.mark.parametrize("start", REVISIONS)
def test_rows_of_every_older_revision_are_kept(database: Database, file: Path, start: str) -> None:
    known = REVISIONS[: REVISIONS.index(start) + 1]
    upgrade_to(file, start)
    with closing(sqlite3.connect(file)) as connection:
        for statement in (statement for revision in known for statement in ROWS.get(revision, [])):
            connection.execute(statement)
        connection.commit()
    database.migrate()
    with closing(sqlite3.connect(file)) as connection:
        profile = connection.execute("SELECT id, revision, managed_by, created_at_milliseconds FROM profile").fetchall()
        revisions = connection.execute("SELECT revision, document FROM profile_revision ORDER BY revision").fetchall()
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[-1],)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert profile == [("kept", 2, "a.yaml", 1000)]
    assert revisions == [(1, '{"id": "kept"}'), (2, '{"id": "kept", "tags": []}')]


def test_models_and_migrations_agree(database: Database, file: Path) -> None:
    database.migrate()  # also imports every tables.py
    assert {"profile", "profile_revision"} <= set(SQLModel.metadata.tables)
    with migration_connection(f"sqlite:///{file}") as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, SQLModel.metadata) == []


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Database, file: Path) -> None:
    database.migrate()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(DatabaseUnavailable, match=r"9999.*upgrade Paceline"):
        database.migrate()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


def test_a_file_that_is_no_database_is_refused_and_left_alone(database: Database, file: Path) -> None:
    file.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(DatabaseUnavailable, match="not a database"):
        database.migrate()
    assert file.read_bytes() == b"Dear diary, " * 1000


@pytest.mark.slow
def test_a_locked_database_is_refused_after_the_busy_timeout(database: Database, file: Path) -> None:
    """Five seconds: the wait is the behaviour, a second process must not fail at once."""
    database.migrate()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable, match="another process holds it"):
            database.migrate()


def test_a_migration_that_fails_leaves_everything_as_it_was(file: Path) -> None:
    upgrade_to(file, REVISIONS[0])

    def upgrade_then_fail() -> None:
        with migration_connection(f"sqlite:///{file}") as connection:
            connection.exec_driver_sql("CREATE TABLE half (x INTEGER)")
            command.upgrade(config_at(connection), "head")
            raise LookupError("power cut")

    with pytest.raises(LookupError):
        upgrade_then_fail()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[0],)]


def test_there_is_no_way_back(file: Path) -> None:
    upgrade_to(file, "head")
    with (
        pytest.raises(NotImplementedError, match="restore a copy"),
        migration_connection(f"sqlite:///{file}") as connection,
    ):
        command.downgrade(config_at(connection), "-1")


def test_the_command_line_migrates_the_database_of_the_settings(tmp_path: Path) -> None:
    """What `make migrate` runs; a process of its own, as settings and working directory are part of it."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-m", "alembic", "upgrade", "head"],
        cwd=ROOT,
        env={**os.environ, "PACELINE_DATA_DIR": str(tmp_path / "data"), "PACELINE_DATABASE_URL": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    with closing(sqlite3.connect(tmp_path / "data" / "paceline.db")) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISIONS[-1],)]
