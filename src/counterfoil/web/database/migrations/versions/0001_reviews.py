"""Reviews, items, reviewers, votes and sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "reviews",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(16), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("votes_wanted", sa.Integer(), nullable=False),
        sa.Column("sentinel_every", sa.Integer(), nullable=False),
        sa.Column("bar", sa.Double(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_reviews"),
        sa.UniqueConstraint("key", name="uq_reviews_key"),
    )
    op.create_index("ix_reviews_run", "reviews", ["run"])
    op.create_table(
        "items",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("review_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Text(), nullable=False),
        sa.Column("picture", sa.String(16), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("label", sa.Integer(), nullable=False),
        sa.Column("class_name", sa.Text(), nullable=False),
        sa.Column("expected", sa.Boolean()),
        sa.Column("votes", sa.Integer(), nullable=False),
        sa.Column("settled", sa.Boolean()),
        sa.PrimaryKeyConstraint("id", name="pk_items"),
        sa.UniqueConstraint("review_id", "trial_id", "picture", "label", name="uq_items_review_id_trial_id_picture_label"),
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name="fk_items_review_id", ondelete="CASCADE"),
    )
    op.create_index("ix_items_queue", "items", ["review_id", "position"])
    op.create_table(
        "reviewers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("review_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("revoked", sa.BigInteger()),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reviewers"),
        sa.UniqueConstraint("key", name="uq_reviewers_key"),
        sa.ForeignKeyConstraint(["review_id"], ["reviews.id"], name="fk_reviewers_review_id", ondelete="CASCADE"),
    )
    op.create_index("ix_reviewers_review_id", "reviewers", ["review_id"])
    op.create_table(
        "votes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Integer(), nullable=False),
        sa.Column("reviewer_id", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Boolean(), nullable=False),
        sa.Column("present", sa.Boolean()),
        sa.Column("single", sa.Boolean()),
        sa.Column("usable", sa.Boolean()),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_votes"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="fk_votes_item_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["reviewer_id"], ["reviewers.id"], name="fk_votes_reviewer_id", ondelete="CASCADE"),
    )
    op.create_index("ix_votes_item_id", "votes", ["item_id"])
    standing = sa.text("withdrawn IS NULL")
    op.create_index(
        "ix_votes_standing",
        "votes",
        ["reviewer_id", "item_id"],
        unique=True,
        sqlite_where=standing,
        postgresql_where=standing,
    )
    op.create_table(
        "sessions",
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("owner", sa.Boolean(), nullable=False),
        sa.Column("reviewer_id", sa.Integer()),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("secret", name="pk_sessions"),
        sa.ForeignKeyConstraint(["reviewer_id"], ["reviewers.id"], name="fk_sessions_reviewer_id", ondelete="CASCADE"),
    )


def downgrade() -> None:
    """Remove them."""
    for table in ("sessions", "votes", "reviewers", "items", "reviews"):
        op.drop_table(table)
