"""The tables are made once, another version's are refused, and what fails half-way leaves nothing; on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from counterfoil.core.errors import UsageError
from counterfoil.web.database import SCHEMA, Database, Review, ReviewItem
from tests.web.postgres import postgres


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgres"))])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'web.sqlite'}"
        return
    with postgres() as found:
        yield found


def _review(key: str = "k") -> Review:
    return Review(key=key, run="r", votes_wanted=1, known_every=0, min_known_correct=0.5)


def test_tables_are_made_once_and_another_number_is_refused(url: str) -> None:
    with Database(url).writing() as db:
        db.add(_review())
    again = Database(url)
    with again.writing() as db:
        assert db.query(Review).one().key == "k"
        db.execute(text("UPDATE counterfoil_schema SET number = 9"))
    again.close()
    with pytest.raises(UsageError, match=f"have the number 9, this version needs {SCHEMA}.; finish its reviews") as refused:
        Database(url)
    assert "\n" not in str(refused.value)


def test_tables_of_a_version_without_a_number_are_refused(url: str) -> None:
    database = Database(url)
    with database.writing() as db:
        db.execute(text("DROP TABLE counterfoil_schema"))
    database.close()
    with pytest.raises(UsageError, match="have the number none"):
        Database(url)


def test_what_fails_half_way_leaves_nothing(url: str) -> None:
    database = Database(url)

    def enter() -> None:
        with database.writing() as db:
            db.add(_review())
            db.flush()
            db.add(ReviewItem(review_id=999, position=0, trial_id="t", which="made", file="f", label=0, class_name="c"))

    with pytest.raises(Exception, match=r"(?i)foreign key"):
        enter()
    with database.reading() as db:
        assert db.query(Review).count() == 0
    database.close()


def test_sqlite_waits_for_the_disk_and_keeps_the_file_private(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'web.sqlite'}")
    with database.reading() as db:
        asked = {name: db.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")}
    assert asked == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert (tmp_path / "web.sqlite").stat().st_mode & 0o077 == 0


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
