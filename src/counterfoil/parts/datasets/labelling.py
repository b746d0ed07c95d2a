"""Turns the labels that a data set is written with, words or numbers, into class names and indices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.core.errors import BadData
from counterfoil.parts import imagenet, labels

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Labelling:
    """Class names, their other names, and the class each written label means."""

    classes: list[str]
    aliases: labels.Aliases | None
    numbers: dict[str, int]


def labelling(written: Iterable[str], classes: str | Sequence[str] | None, *, what: str, folder: Path | None = None) -> Labelling:
    """The classes behind the labels as written.

    With `classes` (a list, or a file with one a line) labels are names or WordNet ids among them, or numbers counted from 0.
    Without, numbers count the names in a file classes.txt in `folder`, if there is one, or name themselves; words are the
    classes, sorted; WordNet ids are put into words.
    """
    labels_written = sorted(set(written))
    if not labels_written:
        raise BadData(f"{what}: no images")
    count = all(_NUMBER.fullmatch(label) for label in labels_written)
    if classes is None and count and folder is not None and (folder / labels.CLASSES_FILE).is_file():
        classes = str(folder / labels.CLASSES_FILE)
    if classes is not None:
        listed = labels.given_names(classes)
        names, aliases = imagenet.recognised(listed)
        if count and not set(labels_written) <= set(listed):
            numbers = {label: int(label) for label in labels_written}
        else:
            matched = labels.match(labels_written, names, what=f"{what}: the classes given", aliases=aliases)
            numbers = dict(zip(labels_written, matched, strict=True))
    elif count:
        numbers = {label: int(label) for label in labels_written}
        names, aliases = [str(number) for number in range(max(numbers.values()) + 1)], None
    else:
        names, aliases = imagenet.in_words(labels_written), [(label,) for label in labels_written]
        numbers = {label: number for number, label in enumerate(labels_written)}
    check_classes(names, what)
    highest = max(numbers.values())
    if highest >= len(names):
        raise BadData(f"{what}: labels go up to {highest}, but there are {len(names)} classes, counted from 0")
    return Labelling(names, aliases, numbers)


def check_classes(names: Sequence[str], what: str) -> None:
    """Raise BadData unless there are two or more classes, each with a name of its own."""
    if len(names) < 2:
        raise BadData(f"{what}: only one class; a test of a classifier needs two or more")
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise BadData(f"{what}: {times} classes are called {twice!r}; give each its own name")
