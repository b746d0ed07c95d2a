"""Tables and transactions of the review server: SQLite in a file, or PostgreSQL by URL. Times are milliseconds since 1970."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import BigInteger, Engine, ForeignKey, Index, UniqueConstraint, event, inspect, select, text
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import UsageError, one_line

SCHEMA = 2
"""Number of the tables below. A database with another number is refused."""

_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000")

Time = Annotated[int, mapped_column(BigInteger)]


def now() -> int:
    """The time as the tables keep it."""
    return time.time_ns() // 1_000_000


class Base(DeclarativeBase):
    """Base of the tables."""

    type_annotation_map: ClassVar = {str: sa.Text}


NUMBER = sa.Table("counterfoil_schema", Base.metadata, sa.Column("number", sa.Integer, primary_key=True))


class Review(Base):
    """One round of people judging a run's images."""

    __tablename__ = "reviews"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)  # its name in addresses
    run: Mapped[str] = mapped_column(index=True)  # the run's name: its path under the served folder
    votes_wanted: Mapped[int]
    known_every: Mapped[int]  # one image in so many has a known answer; 0 for none
    min_known_correct: Mapped[float]  # share of known answers a reviewer must get right to count
    created: Mapped[Time] = mapped_column(default=now)
    published: Mapped[Time | None]  # when its verdicts were last written into the run


class ReviewItem(Base):
    """One image with the class that people are asked about."""

    __tablename__ = "items"
    __table_args__ = (
        UniqueConstraint("review_id", "trial_id", "which", "label"),
        Index("items_in_order", "review_id", "position"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    review_id: Mapped[int] = mapped_column(ForeignKey("reviews.id", ondelete="CASCADE"))
    position: Mapped[int]  # in the shuffled order of the review
    trial_id: Mapped[str]
    which: Mapped[str]  # clean, reconstruction or made
    file: Mapped[str]  # relative to the run directory
    label: Mapped[int]  # the class asked about, in the run's classes
    class_name: Mapped[str]
    expected: Mapped[bool | None]  # of a known answer: whether the class is there
    votes: Mapped[int] = mapped_column(default=0)  # standing votes of reviewers who count
    decided_by_owner: Mapped[bool | None]  # where votes were tied


class Invited(Base):
    """A reviewer who was invited to a review."""

    __tablename__ = "reviewers"

    id: Mapped[int] = mapped_column(primary_key=True)
    review_id: Mapped[int] = mapped_column(ForeignKey("reviews.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    is_owner: Mapped[bool] = mapped_column(default=False)  # the owner of the server, who has no link
    secret: Mapped[str]  # SHA-256 of the link's token; the token itself is not kept
    created: Mapped[Time] = mapped_column(default=now)
    revoked: Mapped[Time | None]
    trusted: Mapped[bool] = mapped_column(default=True)  # False with too few known answers right; the votes then do not count
    item_id: Mapped[int | None] = mapped_column(ForeignKey("items.id", ondelete="SET NULL"), index=True)  # on their screen
    item_since: Mapped[Time] = mapped_column(default=0)


_STANDING = text("withdrawn IS NULL")


class CastVote(Base):
    """A reviewer's answer about one image, or that they passed on it. A withdrawn one stays as a row and counts for nothing."""

    __tablename__ = "votes"
    __table_args__ = (
        Index(
            "one_standing_vote", "reviewer_id", "item_id", unique=True, sqlite_where=_STANDING, postgresql_where=_STANDING
        ),
    )  # fmt: skip

    id: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id", ondelete="CASCADE"), index=True)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewers.id", ondelete="CASCADE"))
    skipped: Mapped[bool] = mapped_column(default=False)
    present: Mapped[bool | None]  # is the class there; None: can't tell
    single: Mapped[bool | None]  # is it the only main object; None: not answered
    usable: Mapped[bool | None]  # is the image usable; None: not answered
    comment: Mapped[str] = mapped_column(default="")
    created: Mapped[Time] = mapped_column(default=now)
    withdrawn: Mapped[Time | None]


class Database:
    """Transactions that read or write. SQLite takes one writer at a time, so writers queue here and not on its lock."""

    def __init__(self, url: str) -> None:
        """Open the database and make its tables if it has none."""
        self.engine = _open(url)
        self._writer = self.engine.execution_options(writes=True)
        self._turn = threading.Lock()
        with self._writer.begin() as connection:
            tables = set(inspect(connection).get_table_names())
            if not tables & {*Base.metadata.tables}:
                Base.metadata.create_all(connection)
                connection.execute(NUMBER.insert().values(number=SCHEMA))
            found = connection.scalar(select(NUMBER.c.number)) if not tables or NUMBER.name in tables else None
        if found != SCHEMA:
            shown = self.engine.url.render_as_string(hide_password=True)
            raise UsageError(
                f"database {shown}: made by another version of Counterfoil (its tables have the number {found or 'none'}, "
                f"this version needs {SCHEMA}); finish its reviews with that version, or give another --database"
            )

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that only reads."""
        with Transaction(self.engine, expire_on_commit=False) as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that is on the disk when the block ends; nothing of it is kept after an exception."""
        with self._turn, Transaction(self._writer, expire_on_commit=False) as transaction, transaction.begin():
            yield transaction

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _open(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError("the database is not a URL; write sqlite:///FILE or postgresql://USER@HOST/NAME") from None
    shown = parsed.render_as_string(hide_password=True)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    kind = parsed.get_backend_name()
    if kind not in ("sqlite", "postgresql"):
        raise UsageError(f"database {shown}: only sqlite:/// and postgresql:// are supported")
    if kind == "sqlite":
        _make_private(parsed.database, shown)
    try:
        engine = sa.create_engine(parsed, pool_size=20, max_overflow=20, pool_pre_ping=kind != "sqlite")
        if kind == "sqlite":
            event.listen(engine, "connect", _prepare)
            event.listen(engine, "begin", _begin)
        with engine.connect():
            return engine
    except ModuleNotFoundError as error:
        raise UsageError(f"database {shown}: needs {error.name}; run: pip install 'counterfoil[postgres]'") from None
    except (SQLAlchemyError, NoSuchModuleError) as error:
        reason = one_line(getattr(error, "orig", error))
        raise UsageError(f"database {shown}: cannot be opened ({reason}); check the address and that it is running") from None


def _make_private(name: str | None, shown: str) -> None:
    """Make the file, readable by its owner alone: it holds hashes of tokens and people's names."""
    if not name or name == ":memory:":
        raise UsageError(f"database {shown}: votes need a file; write sqlite:///FILE")
    try:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise UsageError(f"database {shown}: cannot be written ({error.strerror}); give another with --database") from None


def _prepare(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin says so, not where the driver guesses
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    # A writer takes the lock at once: a reader that turns writer later may find its view outdated and fail.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")
