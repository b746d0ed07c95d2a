"""The leaderboard: a static site with one JSON file a result, which opens from disk and can be put on any web server.

index.html               one table for each test that models took
results/ID.json          the results; whoever submits one hands in such a file
schema.json              what a result file holds, as a JSON schema
reports/ID/              the report of the run behind a result, where the run was given
board.json               marks the folder as a board, so that it may be written over
"""

from __future__ import annotations

from counterfoil.report.board.entry import Entry, schema
from counterfoil.report.board.folder import write_board
from counterfoil.report.board.runs import entries_of
from counterfoil.report.board.submission import read_entry

__all__ = ["Entry", "entries_of", "read_entry", "schema", "write_board"]
