"""The server: browse runs under a folder, compare them, read reports and the board, and have people review images.

app.py           the application: errors, limits and headers of every request; starting and stopping a server
access.py        settings, rights (the owner's token, reviewers' links, signed sessions), pages from templates
runs.py          the runs under the folder, and how far each is
sites.py         reports, comparisons and the board, written when asked for
database.py      tables and transactions
review.py        a review: its items, the next one, votes, known answers
tally.py         results of a review: outcomes, agreement, verdicts
review_pages.py  addresses of a review, for reviewers and for the owner
label_studio.py  a review as Label Studio tasks, and back
"""
