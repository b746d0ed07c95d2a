"""Pairs that a rewriter is trained on: JSON Lines with a caption, a factor and the caption with that factor changed.

{"caption": "a photo of a dog on a sofa", "factor": "subject", "edit": "a photo of a cat on a sofa"}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from counterfoil.core.errors import BadData
from counterfoil.parts.language.factors import FACTORS
from counterfoil.parts.language.tokens import tidy

FIELDS = ("caption", "factor", "edit")
LONGEST = 2_000  # letters


@dataclass(frozen=True)
class Pair:
    """One edit to learn from."""

    caption: str
    factor: str
    edit: str


def read(path: Path) -> list[Pair]:
    """The pairs of a file; a line that is none is named."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            pairs = [_pair(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror}); give a JSON Lines file of pairs (docs/rewriters.md)") from None
    except UnicodeDecodeError:
        raise BadData(f"{path}: not a text file in UTF-8; give a JSON Lines file of pairs (docs/rewriters.md)") from None
    if not pairs:
        raise BadData(f"{path}: holds no pairs; write one a line, with {', '.join(FIELDS)}")
    return pairs


def write(path: Path, pairs: Iterable[Pair]) -> int:
    """Write pairs down, one a line, and say how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for pair in pairs:
            file.write(json.dumps(asdict(pair), ensure_ascii=False) + "\n")
            count += 1
    return count


def digest(pairs: Sequence[Pair]) -> str:
    """SHA-256 over the pairs in their order."""
    total = hashlib.sha256()
    for pair in pairs:
        total.update(json.dumps(asdict(pair), sort_keys=True).encode())
    return total.hexdigest()


def held_out(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """The pairs to train on and those to try on, split by caption, so that no caption is in both; the same every time."""
    tried = [pair for pair in pairs if _number(pair.caption) < share]
    return [pair for pair in pairs if _number(pair.caption) >= share], tried


def grouped(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """The pairs of each caption and factor together, in the order in which they first come."""
    found: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        found.setdefault((pair.caption, pair.factor), []).append(pair)
    return iter(found.values())


def _number(text: str) -> float:
    """A number from 0 to 1 that a text always gets."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def _pair(line: str, where: str) -> Pair:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadData(f"{where}: no JSON ({error.msg})") from None
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in FIELDS):
        raise BadData(f"{where}: has {_held(row)}; a pair has the texts {', '.join(FIELDS)}")
    if row["factor"] not in FACTORS:
        raise BadData(f"{where}: the factor {row['factor']!r} is none of {', '.join(FACTORS)}")
    caption, edit = tidy(row["caption"]), tidy(row["edit"])
    if not caption or not edit or max(len(caption), len(edit)) > LONGEST:
        raise BadData(f"{where}: caption and edit have from 1 to {LONGEST} letters, got {len(caption)} and {len(edit)}")
    if caption == edit:
        raise BadData(f"{where}: the edit is the caption itself; leave such pairs out")
    return Pair(caption, row["factor"], edit)


def _held(row: object) -> str:
    return f"the fields {', '.join(map(str, row)) or 'none'}" if isinstance(row, dict) else f"a JSON {type(row).__name__}"
