"""A dataset's account of itself: the set file and the datasheet that `export` writes, and reading them back."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadData, one_line
from counterfoil.core.tables import read_json, unescape_formula
from counterfoil.store.later import review_lines

SET_FILE = "set.json"
TABLE = "metadata.csv"
FORMAT = "counterfoil-set"
VERSION = 1
UNSTATED = "not stated"

_HOW = {
    "painted": "A painter drew each image from a prompt that puts an object into a background, texture or material. Models,"
    " the surrogates, were shown the images; what enough of them got wrong was kept if an oracle still saw the object.",
    "edited": "Photos were captioned, one factor of each caption was rewritten, and the photo was edited to match. What passed"
    " the quality checks was kept if an oracle still saw the class.",
    "guided": "Photos were changed step by step in a generator's space so that one classifier errs, for as long as an oracle"
    " still saw the class.",
}
"""By the arm that the images belong to."""

_SHARD = re.compile(r"(images-\d+)\.tar/(\d+)\.png")
_PARQUET = re.compile(r"data/test-\d+-of-\d+\.parquet#")


@dataclass(frozen=True)
class About:
    """Everything the files of a set say of it."""

    name: str
    licence: str
    description: str
    protocol: str
    arms: Sequence[str]
    classes: Sequence[Mapping[str, Any]]  # name, folder and ids of those that have images
    labels: Sequence[str]  # class names by label number
    surrogates: Sequence[str]  # models that the set was made against, or whose mistakes chose it
    parts: Mapping[str, str]  # by role
    seed: int
    program: str
    code: str  # hash of the program
    counts: Mapping[str, int]  # images by kind
    by_class: Mapping[str, int]
    accepted_by_people: int
    note: str = ""
    review: Mapping[str, Any] | None = None  # summary of the review by people, if there was one

    @property
    def size(self) -> int:
        """The number of images."""
        return sum(self.counts.values())

    def set_file(self) -> dict[str, Any]:
        """The content of `set.json`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "licence": self.licence,
            "description": self.description,
            "images": self.size,
            "classes": list(self.classes),
            "surrogates": list(self.surrogates),
            "provenance": {
                "protocol": self.protocol, "parts": dict(self.parts), "seed": self.seed,
                "program": self.program, "code": self.code,
            },
            **({"review": dict(self.review)} if self.review else {}),
            **({"note": self.note} if self.note else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class SetFile:
    """A set as its files describe it."""

    class_ids: Mapping[str, tuple[str, ...]]  # by class name and by folder name
    pictures: Mapping[str, Mapping[str, str]]  # rows of the table by the image's id, as the dataset's reader has it
    surrogates: tuple[str, ...] = ()  # models that the set was made against, or whose mistakes chose it


def find_set(folder: Path) -> SetFile | None:
    """Read the set in a folder; None where no set file lies there."""
    path = folder / SET_FILE
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        if content["format"] != FORMAT or content["version"] > VERSION:
            raise BadData(
                f"{path}: {content['format']} version {content['version']}, this program reads {FORMAT} up to {VERSION}"
            )
        ids: dict[str, tuple[str, ...]] = {}
        for entry in content["classes"]:
            ids[str(entry["name"])] = ids[str(entry["folder"])] = tuple(str(each) for each in entry["ids"])
        surrogates = tuple(str(name) for name in content.get("surrogates", ()))
        return SetFile(ids, _read_table(folder / TABLE), surrogates)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise BadData(f"{path}: damaged ({one_line(error)}); export the set again") from None


def datasheet(about: About, *, files: Sequence[str], front: str = "") -> str:
    """Write the datasheet in Markdown. `files` says what lies where; `front` is metadata that has to open the file."""
    lines = [f"# {about.name}", "", f"{about.description}."]
    lines += ["", "## Contents", "", *(f"- {line}" for line in files), "", "| kind | images |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in about.counts.items()]
    fewest, most = min(about.by_class.values()), max(about.by_class.values())
    lines += ["", f"{len(about.by_class)} classes with {fewest} to {most} images each."]
    lines += ["", "## How it was made", "", *(_HOW[arm] for arm in about.arms if arm in _HOW)]
    lines += ["", *(f"- {role}: `{name}`" for role, name in about.parts.items())]
    lines += [f"- surrogates: {', '.join(f'`{name}`' for name in about.surrogates)}"] if about.surrogates else []
    lines += [f"- seed {about.seed}, {about.program}, code {about.code[:12] or UNSTATED}"]
    people = about.accepted_by_people
    lines += ["", "## Checked by", ""]
    lines += [f"- people: {people} of {about.size} images" if people else "- no person has looked at these images"]
    lines += [f"- {line}" for line in review_lines(dict(about.review))] if about.review else []
    lines += [f"- oracle `{about.parts['oracle']}`"] if "oracle" in about.parts else []
    lines += ["", "## Intended use", ""]
    lines += ["- Comparing classifiers on images unlike those they were trained on. Not for training the models under test."]
    if about.surrogates:
        lines += [
            "- The set was made against its surrogates, or chosen by their mistakes. Their accuracy on it says how it was made,",
            "  not how good they are. Other models are tested fairly, those related to a surrogate less so.",
        ]
    lines += ["- The images are generated. They carry the biases of the parts that made them."]
    lines += ["", "## Licence", "", about.licence]
    if about.licence == UNSTATED:
        lines += ["", "No licence was stated. The terms of the parts named above may bind what is made with them."]
    lines += ["", about.note] if about.note else []
    return front + "\n".join(lines) + "\n"


def count_by(names: Sequence[str]) -> dict[str, int]:
    """Count names, in alphabetical order."""
    return dict(sorted(Counter(names).items()))


def _read_table(path: Path) -> dict[str, Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = ({key: unescape_formula(value) for key, value in row.items()} for row in csv.DictReader(stream))
        return {_image_id(row["file_name"], at): row for at, row in enumerate(rows)}


def _image_id(file_name: str, row: int) -> str:
    """The id that the reader of the set's format gives an image: its path, its sample in a shard, or its row."""
    if shard := _SHARD.fullmatch(file_name):
        return f"{shard[1]}/{shard[2]}"
    return f"{row:08d}" if _PARQUET.match(file_name) else file_name
