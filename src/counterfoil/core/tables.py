"""JSON, YAML, CSV and text from outside: size, depth, numbers and encoding are checked in one place, and an error is one line."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from counterfoil.core.errors import BadData, one_line

MAX_BYTES = 256 * 2**20
MAX_DEPTH = 100

_LONG_NUMBER = re.compile(r"\d{19}|[eE]\+?\d{3}")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


class BadJson(BadData, ValueError):
    """JSON from outside that is damaged, too large, nested too deep, or holds a number or text that cannot be kept."""


def parse_json(content: str | bytes, *, what: str, limit: int = MAX_BYTES) -> Any:
    """The value of a JSON text, or BadJson with one line that starts with `what`.

    Whole numbers beyond 64 bits become floats; numbers that are not finite, half surrogate pairs and containers nested
    deeper than MAX_DEPTH are refused.
    """
    if len(content) > limit:
        raise BadJson(f"{what}: {len(content)} bytes of JSON; {limit} are read at most")
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        text.isascii() or text.encode()  # half a surrogate pair cannot be encoded
        options: dict[str, Any] = {"parse_int": _integer, "parse_float": _finite} if _LONG_NUMBER.search(text) else {}
        value = json.loads(text, parse_constant=_finite, **options)
        if _HALF_PAIR.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise BadJson(f"{what}: not JSON (its text is not UTF-8)") from None
    except RecursionError:
        raise BadJson(f"{what}: not JSON (nested more than {MAX_DEPTH} deep)") from None
    except ValueError as error:
        raise BadJson(f"{what}: not JSON ({one_line(error)})") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
        raise BadJson(f"{what}: not JSON (nested more than {MAX_DEPTH} deep)")
    return value


def read_json(path: Path, *, what: str | None = None, limit: int = MAX_BYTES) -> Any:
    """The value of a JSON file; BadJson names the file, or `what` it is."""
    what = what or str(path)
    try:
        content = read_bytes(path, limit=limit)
    except OSError as error:
        raise BadJson(f"{what}: cannot be read ({error.strerror or one_line(error)})") from None
    return parse_json(content, what=what, limit=limit)


def parse_yaml(text: str, *, what: str) -> Any:
    """The value of a YAML text, or BadData with one line that starts with `what`."""
    try:
        value = yaml.load(text, _Yaml)
    except RecursionError:
        raise BadData(f"{what}: not YAML (nested more than {MAX_DEPTH} deep)") from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadData(f"{what}: not YAML ({one_line(error)})") from None
    if isinstance(value, dict | list) and _is_deep(value):
        raise BadData(f"{what}: not YAML (nested more than {MAX_DEPTH} deep)")
    return value


LONGEST = 1000  # digits of a whole number; Python itself reads 4,300 at most


class _Yaml(yaml.SafeLoader):
    """YAML of plain values, whose whole numbers fit into 64 bits: longer ones can be neither printed nor kept."""

    def construct_yaml_int(self, node: Any) -> int:
        """Read a whole number."""
        value = super().construct_yaml_int(node) if len(node.value) <= LONGEST else None
        if value is None or not -(2**63) <= value < 2**64:
            raise ValueError(f"the number {node.value[:20]}… has more than 64 bits")
        return value


_Yaml.add_constructor("tag:yaml.org,2002:int", _Yaml.construct_yaml_int)


def read_text(path: Path, *, limit: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8, or BadData with one line that names the file."""
    try:
        return read_bytes(path, limit=limit).decode("utf-8-sig")
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadData(f"{path}: cannot be read (not a text in UTF-8)") from None


def read_bytes(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes; OSError for a FIFO, a device or a larger file."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
    return content


def open_regular(path: Path) -> BinaryIO:
    """A regular file opened for reading; OSError for a FIFO, which is not waited for, or a device."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_table(path: Path, columns: Sequence[str] = (), *, what: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV or TSV file with headings, cells without blanks around them, each with its line number.

    `columns` have to be there; `what` the file holds is for errors, as in "answers".
    """
    rows = read_rows(path, what=what)
    _, head = next(rows, (0, []))
    missing = [name for name in columns if name not in head]
    if missing:
        raise BadData(f"{path}: has no column {missing[0]!r}; {what} have the columns {', '.join(columns)}")
    for line, row in rows:
        yield line, {name: row[at] if at < len(row) else "" for at, name in enumerate(head)}


def read_rows(path: Path, *, what: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV or TSV file that are not empty, each with its line number; cells without blanks around them or an
    escape in front, as our own files have it.
    """
    try:
        with open_regular(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            for row in rows:
                if any(cell.strip() for cell in row):
                    yield rows.line_num, [unescape_formula(cell.strip()) for cell in row]
    except OSError as error:
        raise BadData(f"{path}: {what} cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadData(f"{path}: not a CSV file ({one_line(error)})") from None


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) < 21 else None
    return value if value is not None and -(2**63) <= value < 2**64 else _finite(digits)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]}{'…' * (len(text) > 20)} is not finite")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        children = (child for each in level for child in (each.values() if isinstance(each, dict) else each))
        level = list({id(child): child for child in children if isinstance(child, dict | list)}.values())  # YAML shares
    return True


def escape_formula(text: str) -> str:
    """Put a quote before a text that a spreadsheet would run as a formula; `unescape_formula` takes it away."""
    return f"'{text}" if _is_formula(text) else text


def unescape_formula(text: str) -> str:
    """Undo `escape_formula`."""
    return text[1:] if text.startswith("'") and _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Tell whether a spreadsheet takes the text for a formula, quotes before it aside."""
    return text.lstrip("'").startswith(("=", "+", "-", "@", "\t", "\r"))
