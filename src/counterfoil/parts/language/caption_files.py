"""Captions that were written down before: in a file, or in a column of the data set."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadData, one_line
from counterfoil.parts.contracts import Caption, Sample
from counterfoil.parts.language.tokens import tidy
from counterfoil.parts.weights import file_sha256

_IDS = ("image_id", "id", "image", "path", "file", "file_name", "filename")
_TEXTS = ("caption", "text", "description")
LONGEST = 2_000  # letters; more is no caption but a mistake


def captions(path: str, *, prefix: str = "") -> GivenCaptions:
    """Captions from a file, captions:FILE (.csv, .tsv, .jsonl or COCO's .json), or from the data set's own column, captions:.

    A file has a column image_id (or id, path, file_name) and a column caption; the first caption of an image counts.
    `prefix`, as in "a photo of ", goes before each.
    """
    return GivenCaptions(Path(path).expanduser() if path else None, prefix=prefix)


class GivenCaptions:
    """Looks captions up by image id, by source, or by file name where that is unambiguous."""

    def __init__(self, file: Path | None, *, prefix: str = "") -> None:
        self._file = file
        self._prefix = prefix
        self._texts = _table(_rows(file), file) if file is not None else {}
        names = Counter(PurePosixPath(key).name for key in self._texts)
        self._names = {PurePosixPath(key).name: key for key in self._texts if names[PurePosixPath(key).name] == 1}

    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        """One caption a picture; the pictures are not looked at."""
        return [self._of(sample) for sample in samples]

    def provenance(self) -> dict[str, str]:
        """The file's hash."""
        if self._file is None:
            return {"source": "the data set", "prefix": self._prefix}
        return {"captions": str(len(self._texts)), "file": file_sha256(self._file), "prefix": self._prefix}

    def _of(self, sample: Sample) -> Caption:
        text = sample.caption if self._file is None else self._found(sample)
        where = "the data set" if self._file is None else self._file.name
        if text is None:
            return Caption("", f"{where} has no caption for {sample.image_id!r}")
        if not text.strip():
            return Caption("", f"{where}: the caption of {sample.image_id!r} is empty")
        if len(text) > LONGEST:
            return Caption(text[:LONGEST], f"{where}: the caption of {sample.image_id!r} has {len(text)} letters")
        return Caption(tidy(f"{self._prefix}{text}"))

    def _found(self, sample: Sample) -> str | None:
        name = PurePosixPath(sample.source).name
        for key in (sample.image_id, sample.source, self._names.get(name), self._names.get(PurePosixPath(name).stem)):
            if key is not None and key in self._texts:
                return self._texts[key]
        return None


def _rows(file: Path) -> Iterable[Mapping[str, Any]]:
    try:
        if file.suffix.lower() in (".csv", ".tsv"):
            with file.open(encoding="utf-8-sig", newline="") as opened:
                return list(csv.DictReader(opened, delimiter="\t" if file.suffix.lower() == ".tsv" else ","))
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".json":
            return _coco(json.loads(text), file)
        return [_line(line, number, file) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    except OSError as error:
        raise BadData(
            f"captions:{file}: cannot be read ({error.strerror}); give a .csv, .tsv, .jsonl or COCO .json file"
        ) from None
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise BadData(f"captions:{file}: cannot be parsed ({one_line(error)})") from None


def _line(line: str, number: int, file: Path) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadData(f"captions:{file}: line {number} is no JSON ({error.msg})") from None
    if not isinstance(row, dict):
        raise BadData(f"captions:{file}: line {number} is a JSON {type(row).__name__}, not an object with image_id and caption")
    return row


def _coco(content: Any, file: Path) -> list[Mapping[str, Any]]:
    """COCO's layout, where captions name images by number and images have file names."""
    if isinstance(content, dict) and isinstance(content.get("annotations"), list):
        names = {image.get("id"): image.get("file_name") for image in content.get("images", []) if isinstance(image, dict)}
        return [
            {"image_id": names.get(row.get("image_id"), row.get("image_id")), "caption": row.get("caption")}
            for row in content["annotations"]
            if isinstance(row, dict)
        ]
    if isinstance(content, dict):
        return [{"image_id": key, "caption": value} for key, value in content.items()]
    raise BadData(f"captions:{file}: neither COCO's layout nor a mapping of image ids to captions")


def _table(rows: Iterable[Mapping[str, Any]], file: Path | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        keys = {str(key).strip().casefold(): value for key, value in row.items()}
        image = next((keys[name] for name in _IDS if keys.get(name) not in (None, "")), None)
        text = next((keys[name] for name in _TEXTS if name in keys), None)
        if image is None or not isinstance(text, str):
            raise BadData(
                f"captions:{file}: entry {number} has the fields {', '.join(map(str, keys)) or 'none'}; "
                "image_id and caption are needed"
            )
        found.setdefault(str(image), text)
    if not found:
        raise BadData(f"captions:{file}: holds no captions; give one image a line, with image_id and caption")
    return found
