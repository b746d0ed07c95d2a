"""Reading a result that somebody hands in: it has to fit the schema, and its numbers have to follow from its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from counterfoil.core.errors import UsageError
from counterfoil.report.board.answers import numbers_of
from counterfoil.report.board.entry import NUMBERS, Entry, Number

LARGEST = 64 * 2**20  # bytes of a result file; a million images take less
COMPLAINTS = 5  # told at once
_NEAR = 1e-4  # how far a number may be off; files carry six decimals
_NEAR_BOUND, _NEAR_SHARE = 0.5, 0.1  # the same for bounds, which hang on the draws: in points, and of the width


def read_entry(path: Path) -> Entry:
    """The result in a file; UsageError, in one line, if it is not one that a board can take."""
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: {path.stat().st_size / 2**20:.0f} MiB, and a result has at most {LARGEST // 2**20} MiB")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a result file") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: not JSON; give a file that 'counterfoil export RUN --format result' wrote") from None
    found = content.get("format") if isinstance(content, dict) else None
    if isinstance(found, str) and found.startswith("counterfoil-result-") and found != "counterfoil-result-1":
        raise UsageError(f"{path}: written by a newer Counterfoil ({found}); update this one")
    try:
        entry = Entry.model_validate(content)
    except ValidationError as error:
        told = [_complaint(each) for each in error.errors()[:COMPLAINTS]]
        more = f"; and {error.error_count() - COMPLAINTS} more" if error.error_count() > COMPLAINTS else ""
        raise UsageError(f"{path}: not a result: {'; '.join(told)}{more}") from None
    problems = list(_problems(entry))
    if problems:
        raise UsageError(f"{path}: {'; '.join(problems[:COMPLAINTS])}")
    return entry


def _complaint(item: object) -> str:
    where = ".".join(str(step) for step in item["loc"]) or "the file"  # type: ignore[index]
    return f"{where}: {item['msg'].lower()}"  # type: ignore[index]


def _problems(entry: Entry) -> Iterator[str]:
    """What a schema can't say."""
    answers = entry.answers
    images = len(answers.images)
    columns = {name: getattr(answers, name) for name in ("clean", "accepted", "made", "reconstruction", "random")}
    wrong = [f"{name} has {len(said)}" for name, said in columns.items() if len(said) != images]
    if answers.clusters and len(answers.clusters) != images:
        wrong.append(f"clusters has {len(answers.clusters)}")
    if not images:
        yield "answers: no images"
    elif wrong:
        yield f"answers: {images} images, but {', '.join(wrong)} letters"
    elif any(first >= second for first, second in zip(answers.images, answers.images[1:], strict=False)):
        yield "answers.images: not in rising order, or one is there twice"
    else:
        yield from _off(entry)


def _off(entry: Entry) -> Iterator[str]:
    """The numbers that are not what the answers come to."""
    true = numbers_of(entry.answers, seed=entry.seed)
    for name in NUMBERS:
        if name not in entry.numbers:
            yield f"numbers: no {name}"
        elif not _agree(entry.numbers[name], true[name]):  # type: ignore[index]
            said = entry.numbers[name]  # type: ignore[index]
            yield f"numbers.{name}: says {_text(said)}, but the answers come to {_text(true[name])}"


def _agree(said: Number, true: Number) -> bool:
    near = _NEAR_BOUND + _NEAR_SHARE * ((true.high or 0) - (true.low or 0))
    pairs = ((said.value, true.value, _NEAR), (said.low, true.low, near), (said.high, true.high, near))
    return said.n == true.n and all((a is None) == (b is None) and abs((a or 0) - (b or 0)) <= far for a, b, far in pairs)


def _text(number: Number) -> str:
    if number.value is None:
        return "no value"
    if number.low is None or number.high is None:
        return f"{number.value:.4g} (no interval, n = {number.n})"
    return f"{number.value:.4g} ({number.low:.4g} to {number.high:.4g}, n = {number.n})"
