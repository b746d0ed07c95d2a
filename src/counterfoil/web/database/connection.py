"""Opening the database, and transactions that read or write."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import UsageError, one_line

Result = TypeVar("Result")

_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000")


@dataclass
class _Piece:
    """Some work that waits for its turn, and what came of it."""

    work: Callable[[Transaction], Any]
    done: bool = False
    result: Any = None
    error: BaseException | None = None

    def attempt(self, connection: Connection) -> None:
        """Do the work, or leave no trace of it and remember why."""
        try:
            with Transaction(connection, expire_on_commit=False, join_transaction_mode="create_savepoint") as transaction:
                self.result = self.work(transaction)
                transaction.commit()
        except Exception as error:
            self.error = error


class Database:
    """An engine with two kinds of transactions. SQLite takes one writer at a time, so writers queue here and not on its lock."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._writer = self.engine.execution_options(writes=True)
        self._turn = threading.Lock() if self.is_sqlite else nullcontext()
        self._waiting: deque[_Piece] = deque()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that only reads."""
        with Transaction(self.engine, expire_on_commit=False) as transaction:
            yield transaction

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        """A bare connection for reading, for what every vote asks."""
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that is committed, and on the disk, when the block ends; nothing of it is kept after an exception."""
        with self._turn, Transaction(self._writer, expire_on_commit=False) as transaction, transaction.begin():
            yield transaction

    def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Do some work in a writing transaction; it is on the disk when this returns.

        SQLite waits for the disk at every commit, so what has come in meanwhile goes into one transaction together, each
        piece in a savepoint of its own. PostgreSQL sees to that itself; there, work is done once more from the start where
        two pieces got in each other's way.
        """
        if self.is_sqlite:
            return self._together(work)
        for attempt in range(3):
            try:
                with self.writing() as transaction:
                    return work(transaction)
            except (IntegrityError, OperationalError):
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def _together(self, work: Callable[[Transaction], Result]) -> Result:
        mine = _Piece(work)
        self._waiting.append(mine)
        with self._turn:
            if not mine.done:  # whoever had the turn before may have done it along with theirs
                pieces = [self._waiting.popleft() for _ in range(len(self._waiting))]
                try:
                    with self._writer.begin() as connection:
                        for piece in pieces:
                            piece.attempt(connection)
                        _still_there(connection)
                except BaseException as error:  # nothing was kept, of no piece
                    for piece in pieces:
                        piece.error = error
                for piece in pieces:
                    piece.done = True
        if mine.error is not None:
            raise mine.error
        return cast(Result, mine.result)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A bare connection in a writing transaction, for migrations."""
        with self._turn, self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()


def _still_there(connection: Connection) -> None:
    """SQLite drops a whole transaction on a full disk, and the driver takes a commit of nothing for success."""
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        raise OperationalError("COMMIT", None, RuntimeError("the transaction was dropped; the disk may be full"))


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UsageError("the database is not a URL; write sqlite:///FILE or postgresql://USER@HOST/NAME") from None
    shown = parsed.render_as_string(hide_password=True)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageError(f"database {shown}: only sqlite:/// and postgresql:// are supported")
    if parsed.get_backend_name() == "sqlite":
        _private_file(parsed.database, shown)
    try:
        engine = create_engine(parsed, pool_size=20, max_overflow=20, pool_pre_ping=parsed.get_backend_name() != "sqlite")
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare)
            event.listen(engine, "begin", _begin)
        with engine.connect():
            return engine
    except ModuleNotFoundError as error:
        raise UsageError(f"database {shown}: needs {error.name}; run: pip install 'counterfoil[postgres]'") from None
    except (SQLAlchemyError, NoSuchModuleError) as error:
        reason = one_line(getattr(error, "orig", error))
        raise UsageError(f"database {shown}: cannot be opened ({reason}); check the address and that it is running") from None


def _private_file(name: str | None, shown: str) -> None:
    """Make sure the file is there and only its owner can read it: it holds hashes of tokens and people's names."""
    if not name or name == ":memory:":
        raise UsageError(f"database {shown}: votes need a file to be kept in; write sqlite:///FILE")
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
    # A writer takes the lock at once: a reader that turns writer half-way may find its view outdated and fail.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")
