"""The server: browse runs under a folder, compare them, read reports and the board, and have people review pictures.

settings.py     what a server is told at its start
catalogue.py    the runs under the folder, and the only way from a name in an address to a folder on disk
progress.py     how far a run under way is
rendered.py     reports and boards, made when somebody asks and kept
database/       reviews, reviewers, votes and sessions: SQLite, or PostgreSQL by URL
security/       who somebody is, and what a request may not do
review/         items, the queue, votes, agreement, ties, verdicts, Label Studio
routes/         addresses; thin over all of the above
"""
