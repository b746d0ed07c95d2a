"""Reports: a folder of plain files about one or several runs, which opens from disk and needs no network.

index.html               the page; with several runs, run-1.html … besides, one for each
report.css, *.js         how it looks and what can be clicked
data/                    what the gallery shows, as scripts, because a page opened from disk may not fetch JSON
pictures/, thumbs/       the pictures of the gallery
downloads/               every trial as CSV and Parquet, the numbers, the specification
report.json              marks the folder as a report, so that it may be written over
"""

from __future__ import annotations
