"""Alembic's entry point: migrations run on the connection, and in the transaction, that `migrate.py` hands over."""

from __future__ import annotations

from alembic import context

from counterfoil.web.database.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True)
context.run_migrations()
