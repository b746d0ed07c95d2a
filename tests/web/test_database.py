"""The tables that migrations make are those the program uses, on both databases."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.orm import Session as Transaction

import counterfoil.web.database
from counterfoil.core.errors import UsageError
from counterfoil.web.database import Database, Item, Review
from counterfoil.web.database.migrate import HEAD, bring_up_to_date
from counterfoil.web.database.models import Base
from tests.web.postgres import postgres


def _sqlite(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'web.sqlite'}")


def _check_tables(database: Database) -> None:
    bring_up_to_date(database)
    bring_up_to_date(database)
    with database.connection() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_migrations_make_the_tables_on_sqlite(tmp_path: Path) -> None:
    database = _sqlite(tmp_path)
    _check_tables(database)
    with database.connection() as connection:
        asked = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert asked == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert (tmp_path / "web.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.xdist_group("postgres")
def test_migrations_make_the_tables_on_postgresql() -> None:
    with postgres() as url:
        database = Database(url)
        _check_tables(database)
        database.close()


def test_the_newest_migration_is_the_one_the_program_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(counterfoil.web.database.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    database = _sqlite(tmp_path)
    bring_up_to_date(database)
    with database.connection() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UsageError, match="newer Counterfoil"):
        bring_up_to_date(database)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "not a URL"),
        ("mysql://u:secret@host/x", "only sqlite"),
        ("sqlite://", "need a file"),
        ("sqlite:////proc/nothing/x.sqlite", "cannot be written"),
        ("postgresql://u:secret@127.0.0.1:1/x", "cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_in_one_line(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        Database(url)
    assert "secret" not in str(refused.value) and "\n" not in str(refused.value)


def test_work_done_together_is_kept_or_refused_each_for_itself(tmp_path: Path) -> None:
    database = _sqlite(tmp_path)
    bring_up_to_date(database)
    assert _all_at_once(database, ["a", "fails", "b", "c"]) == {"a": True, "fails": False, "b": True, "c": True}
    assert _keys(database) == {"a", "b", "c"}
    # A transaction that SQLite drops half-way, as on a full disk, is no success for anybody.
    assert _all_at_once(database, ["d", "drops", "e"]) == {"d": False, "drops": False, "e": False}
    assert "d" not in _keys(database)
    assert _all_at_once(database, ["f"]) == {"f": True}


def _all_at_once(database: Database, keys: list[str]) -> dict[str, bool]:
    """Which of several pieces of work, done in one transaction, are said to be kept."""
    said: dict[str, bool] = {}

    def enter(key: str) -> None:
        def work(transaction: Transaction) -> None:
            transaction.add(Review(key=key, run="r", votes_wanted=1, sentinel_every=0, bar=0.5))
            transaction.flush()
            if key == "fails":
                raise ValueError(key)
            if key == "drops":
                transaction.connection().exec_driver_sql("ROLLBACK")

        try:
            database.write(work)
            said[key] = True
        except Exception:
            said[key] = False

    threads = [threading.Thread(target=enter, args=(key,)) for key in keys]
    with database._turn:  # type: ignore[union-attr]
        for place, thread in enumerate(threads, start=1):
            thread.start()
            while len(database._waiting) < place:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return said


def _keys(database: Database) -> set[str]:
    with database.reading() as transaction:
        return {review.key for review in transaction.query(Review)}


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    database = _sqlite(tmp_path)
    bring_up_to_date(database)

    def enter() -> None:
        with database.writing() as transaction:
            transaction.add(Review(key="k", run="r", votes_wanted=1, sentinel_every=0, bar=0.5))
            transaction.flush()
            transaction.add(Item(review_id=999, position=0, trial_id="t", picture="made", file="f", label=0, class_name="c"))

    with pytest.raises(Exception, match="FOREIGN KEY"):
        enter()
    with database.reading() as transaction:
        assert transaction.query(Review).count() == 0
