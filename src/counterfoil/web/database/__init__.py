"""The database of the server: SQLite in a file, or PostgreSQL. Every write is on the disk before it is answered."""

from __future__ import annotations

from counterfoil.web.database.connection import Database
from counterfoil.web.database.models import Item, Review, Reviewer, Session, Vote

__all__ = ["Database", "Item", "Review", "Reviewer", "Session", "Vote"]
