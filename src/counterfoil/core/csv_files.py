"""CSV files that people write, read line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from counterfoil.core.errors import BadData, one_line


def read_rows(path: Path, columns: Sequence[str], *, what: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The cells of some columns without blanks around them, with the number of each line; `what` the file holds, for errors."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in columns if name not in (rows.fieldnames or ())]
            if missing:
                raise BadData(f"{path}: has no column {missing[0]!r}; {what} have the columns {', '.join(columns)}")
            for line, row in enumerate(rows, start=2):
                yield line, {name: (row[name] or "").strip() for name in columns}
    except OSError as error:
        raise BadData(f"{path}: {what} cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{path}: not a CSV file ({one_line(error)})") from None
