"""Brings a database to the tables this version uses, with Alembic."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from counterfoil.core.errors import UsageError
from counterfoil.web.database.connection import Database

HEAD = "0001"
"""The newest migration. A test holds it to the folder of migrations; here it spares a start the import of Alembic."""

_ADVISORY_LOCK = 0x636F756E  # any number will do as long as every server takes the same


def bring_up_to_date(database: Database) -> None:
    """Create the tables, or change those of an older version. One server does it, others wait."""
    with database.connection() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
        there = _version(connection)
        if there == HEAD:
            return
        if there is not None and there > HEAD:
            shown = database.engine.url.render_as_string(hide_password=True)
            raise UsageError(f"database {shown}: written by a newer Counterfoil (tables {there}, this one has {HEAD}); update it")
        _upgrade(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
