"""Reads what `export` wrote beside the pictures of a set: the classes with their ids, and how each picture was made."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from counterfoil.core.errors import BadData, one_line

SET_FILE = "set.json"
TABLE = "metadata.csv"
FORMAT = "counterfoil-set"
VERSION = 1
_SHARD = re.compile(r"(pictures-\d+)\.tar/(\d+)\.png")
_PARQUET = re.compile(r"data/test-\d+-of-\d+\.parquet#")


@dataclass(frozen=True)
class SetFile:
    """What a set says of itself."""

    class_ids: Mapping[str, tuple[str, ...]]  # by class name and by folder name
    pictures: Mapping[str, Mapping[str, str]]  # rows of the table by the picture's id, as the data set's reader has it
    surrogates: tuple[str, ...] = ()  # models whose misses decided what is in it


def find_set(folder: Path) -> SetFile | None:
    """The set in a folder, or None where no set file lies there."""
    path = folder / SET_FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] > VERSION:
            raise BadData(
                f"{path}: {content['format']} version {content['version']}, this program reads {FORMAT} up to {VERSION}"
            )
        ids: dict[str, tuple[str, ...]] = {}
        for entry in content["classes"]:
            ids[str(entry["name"])] = ids[str(entry["folder"])] = tuple(str(each) for each in entry["ids"])
        surrogates = tuple(str(name) for name in content.get("surrogates", ()))
        return SetFile(ids, _rows(folder / TABLE), surrogates)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadData(f"{path}: damaged ({one_line(error)}); export the set again") from None


def _rows(path: Path) -> dict[str, Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return {_image_id(row["file_name"], at): row for at, row in enumerate(csv.DictReader(stream))}


def _image_id(file_name: str, row: int) -> str:
    """The id that the reader of the set's format gives a picture: its path, its sample in a shard, or its row."""
    if shard := _SHARD.fullmatch(file_name):
        return f"{shard[1]}/{shard[2]}"
    return f"{row:08d}" if _PARQUET.match(file_name) else file_name
