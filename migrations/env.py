"""Alembic's entry: the service hands its connection in; the command line opens the database of the settings."""

from importlib import import_module
from pathlib import Path

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlmodel import SQLModel

import app
from app.database import migration_connection
from app.settings import load_settings

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def import_tables() -> None:
    """Every `app/*/tables.py`, so that no new one can be forgotten here."""
    for file in sorted(Path(app.__path__[0]).glob("*/tables.py")):
        import_module(f"app.{file.parent.name}.tables")


def migrate(connection: Connection) -> None:
    SQLModel.metadata.naming_convention = NAMING
    import_tables()
    context.configure(
        connection=connection,
        target_metadata=SQLModel.metadata,
        render_as_batch=True,  # SQLite changes a table by building it anew
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise CommandError("--sql is not offered: some revisions have to look at the rows")

handed_in = context.config.attributes.get("connection")
if handed_in is not None:
    migrate(handed_in)
else:
    with migration_connection(load_settings().database) as opened:
        migrate(opened)
