"""The tables: reviews, their items and reviewers, votes and sessions. Times are milliseconds since 1970."""

from __future__ import annotations

import time

from sqlalchemy import BigInteger, ForeignKey, Index, MetaData, String, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Constraints have names, so that migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def now() -> int:
    """The time as the tables keep it."""
    return time.time_ns() // 1_000_000


class Review(Base):
    """One round of people looking at a run's pictures."""

    __tablename__ = "reviews"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(16), unique=True)  # what addresses call it
    run: Mapped[str] = mapped_column(Text, index=True)  # the run's name: its path under the served folder
    votes_wanted: Mapped[int]
    sentinel_every: Mapped[int]  # one picture in so many has a known answer; 0 for none
    bar: Mapped[float]  # share of known answers a reviewer must get right to count
    created: Mapped[int] = mapped_column(BigInteger, default=now)
    published: Mapped[int | None] = mapped_column(BigInteger)  # when its verdicts were last written into the run


class Item(Base):
    """One picture with the class that people are asked about."""

    __tablename__ = "items"
    __table_args__ = (
        UniqueConstraint("review_id", "trial_id", "picture", "label"),
        Index("ix_items_queue", "review_id", "position"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    review_id: Mapped[int] = mapped_column(ForeignKey("reviews.id", ondelete="CASCADE"))
    position: Mapped[int]  # in the order of the review, which is shuffled
    trial_id: Mapped[str] = mapped_column(Text)
    picture: Mapped[str] = mapped_column(String(16))  # clean, reconstruction or made
    file: Mapped[str] = mapped_column(Text)  # the picture, relative to the run directory
    label: Mapped[int]  # the class asked about, in the run's classes
    class_name: Mapped[str] = mapped_column(Text)
    expected: Mapped[bool | None]  # for a sentinel: whether the class is there
    votes: Mapped[int] = mapped_column(default=0)  # standing votes of reviewers who count
    settled: Mapped[bool | None]  # what the owner decided where votes were tied


class Reviewer(Base):
    """Somebody who was invited."""

    __tablename__ = "reviewers"

    id: Mapped[int] = mapped_column(primary_key=True)
    review_id: Mapped[int] = mapped_column(ForeignKey("reviews.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(String(16), unique=True)
    name: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(String(64))  # SHA-256 of the invitation's token; the token itself is not kept
    created: Mapped[int] = mapped_column(BigInteger, default=now)
    revoked: Mapped[int | None] = mapped_column(BigInteger)
    trusted: Mapped[bool] = mapped_column(default=True)  # False below the bar on sentinels; the votes then do not count


class Vote(Base):
    """What one reviewer said of one picture, or that they passed. Taken back, it stays as a row and counts for nothing."""

    __tablename__ = "votes"
    __table_args__ = (
        Index(
            "ix_votes_standing",
            "reviewer_id",
            "item_id",
            unique=True,
            sqlite_where=text("withdrawn IS NULL"),
            postgresql_where=text("withdrawn IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[int] = mapped_column(ForeignKey("items.id", ondelete="CASCADE"), index=True)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewers.id", ondelete="CASCADE"))
    skipped: Mapped[bool] = mapped_column(default=False)
    present: Mapped[bool | None]  # is the class there; None: can't tell
    single: Mapped[bool | None]  # is it one class; None: not answered
    usable: Mapped[bool | None]  # is the picture usable; None: not answered
    comment: Mapped[str] = mapped_column(Text, default="")
    created: Mapped[int] = mapped_column(BigInteger, default=now)
    withdrawn: Mapped[int | None] = mapped_column(BigInteger)


class Session(Base):
    """A browser that showed a token once."""

    __tablename__ = "sessions"

    secret: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of the cookie
    owner: Mapped[bool] = mapped_column(default=False)
    reviewer_id: Mapped[int | None] = mapped_column(ForeignKey("reviewers.id", ondelete="CASCADE"))
    expires: Mapped[int] = mapped_column(BigInteger)
