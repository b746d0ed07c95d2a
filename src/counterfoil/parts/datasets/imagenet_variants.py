"""Public test sets for ImageNet classifiers, read as their authors lay them out.

A layout is the folders below the root, one level after the other: a class by WordNet id or by ImageNet's number, or what was done
to the image, which its samples carry as `factor` and `value`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from torch import Tensor

from counterfoil.core.errors import BadData, one_line
from counterfoil.parts import imagenet, images
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.files import Files, image_files
from counterfoil.parts.datasets.image_set import ImageSet, index


@dataclass(frozen=True)
class Layout:
    """The levels of folders, the folder between the root and the first of them, and what a file's name begins with."""

    levels: tuple[str, ...]
    top: tuple[str, ...] = ()  # patterns, of which the first that is there counts; else the root itself
    prefix: str = ""  # a factor whose value a file's name begins with, as in art_0.jpg
    border: int = 0  # pixels to cut off on every side


LAYOUTS: Mapping[str, Layout] = {
    "imagenet-c": Layout(("factor", "value", "class")),
    "imagenet-r": Layout(("class",), prefix="style"),
    "imagenet-a": Layout(("class",)),
    "imagenet-sketch": Layout(("class",), top=("sketch",)),
    "imagenet-v2": Layout(("number",), top=("imagenetv2-*-format-val", "imagenetv2-*")),
    "objectnet": Layout(("object",), top=("images",), border=2),
}
_MEANING = {
    "class": "a class's WordNet id, such as n01440764",
    "number": "a class's number, 0 to 999",
    "factor": "a corruption, such as fog",
    "value": "a severity, 1 to 5",
    "object": "an object, such as alarm_clock",
    "kind": "background, texture or material",
}
_FITS = {
    "class": re.compile(r"n\d{8}"),
    "number": re.compile(r"\d{1,3}"),
    "value": re.compile(r"[1-5]"),
    "kind": re.compile("background|texture|material"),
}


@dataclass(frozen=True)
class CutFiles(Files):
    """Reads images below a folder, without a border."""

    border: int = 0

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The image, square with side `size` if given; raises BadImage if it can't be used.  # → (3, H, W)"""
        whole, cut = images.read(self.root / sample.source, None), self.border
        inner = whole[:, cut : whole.shape[1] - cut, cut : whole.shape[2] - cut]
        return inner if size is None else images.fit(inner[None], size)[0]


@dataclass(frozen=True)
class VariantOptions:
    """Of ImageNet-C the corruptions and severities to read; by default all."""

    corruptions: Sequence[str] | None = None
    severities: Sequence[int] | None = None


def variant(kind: str, root: str, options: VariantOptions) -> ImageSet:
    """A public test set, from the folder in which its authors' archives were unpacked.

    `corruptions` and `severities` read a part of ImageNet-C. Of ObjectNet only objects that are ImageNet classes count.
    """
    known = _objects(Path(root).expanduser()) if "object" in LAYOUTS[kind].levels else {}
    wanted = {"factor": options.corruptions, "value": options.severities}
    return read_layout(
        f"{kind}:{root}", root, LAYOUTS[kind], known, {name: {*map(str, each)} for name, each in wanted.items() if each}
    )


def read_layout(
    what: str,
    root: str,
    layout: Layout,
    known: Mapping[str, tuple[str, ...]],
    wanted: Mapping[str, set[str]],
    spoken: Mapping[tuple[str, ...], str] = MappingProxyType({}),
) -> ImageSet:
    """A set in a layout. `known` are the WordNet ids of folders of objects, `spoken` the names of classes by their ids."""
    home = Path(root).expanduser()
    top = next((found for pattern in layout.top for found in sorted(home.glob(pattern)) if found.is_dir()), home)
    if not top.is_dir():
        raise BadData(f"{what}: no such folder; give the one with {_MEANING[layout.levels[0]]} for each folder")
    rows: list[dict[str, str]] = []
    for path, told in _walk(top, layout.levels, wanted):
        if "object" in told and told["object"] not in known:
            continue
        for file in sorted(image_files(path)):
            style = {"factor": layout.prefix, "value": file.rpartition("/")[2].partition("_")[0]} if layout.prefix else {}
            rows.append({"id": (path / file).relative_to(top).as_posix(), **told, **style})
    if not rows:
        raise BadData(f"{what}: no images in folders named by {', then '.join(_MEANING[level] for level in layout.levels)}")
    ids = _class_ids(rows, known)
    numbers = {each: number for number, each in enumerate(dict.fromkeys(sorted(ids)))}
    words = {entry.wordnet: entry.name for entry in imagenet.classes()}
    names = [spoken.get(group) or " or ".join(words.get(each, each) for each in group) for group in numbers]
    listed = index(
        [row["id"] for row in rows],
        [numbers[group] for group in ids],
        what=root,
        factor=[row.get("factor") or row.get("kind", "") for row in rows],
        value=[row.get("value", "") for row in rows],
    )
    reader = CutFiles(top, layout.border) if layout.border else Files(top)
    kind = what.partition(":")[0]
    found = ImageSet(listed, names, reader, about=partial(dict, layout=kind), aliases=[tuple(group) for group in numbers])
    found.class_ids = dict(zip(names, numbers, strict=True))
    return found


def _walk(folder: Path, levels: Sequence[str], wanted: Mapping[str, set[str]]) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the folders at the last level, and what those on the way say."""
    if not levels:
        yield folder, {}
        return
    level = levels[0]
    for each in sorted(folder.iterdir()):
        fits = level not in _FITS or _FITS[level].fullmatch(each.name)
        if each.is_dir() and fits and not each.name.startswith(".") and each.name in wanted.get(level, {each.name}):
            for path, told in _walk(each, levels[1:], wanted):
                yield path, {level: each.name, **told}


def _class_ids(rows: Sequence[Mapping[str, str]], known: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The WordNet ids that each row's class stands for."""
    classes = imagenet.classes()
    return [
        known[row["object"]] if "object" in row else (classes[int(row["number"])].wordnet if "number" in row else row["class"],)
        for row in rows
    ]


def _objects(home: Path) -> dict[str, tuple[str, ...]]:
    """The WordNet ids of ObjectNet's folders, where they have some, from the mappings that come with its images."""
    folder = home / "mappings"
    try:
        labels, classes, places = (
            json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for name in ("folder_to_objectnet_label", "objectnet_to_imagenet_1k", "pytorch_to_imagenet_2012_id")
        )
        lines = (folder / "imagenet_to_label_2012_v2").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BadData(f"objectnet:{home}: mappings cannot be read ({one_line(error)}); they come with the images") from None
    ids, outputs = [entry.wordnet for entry in imagenet.classes()], {int(line): int(output) for output, line in places.items()}
    wordnet = {label.strip(): ids[outputs[line]] for line, label in enumerate(lines) if line in outputs}
    return {
        name: tuple(wordnet[each.strip()] for each in classes[label].split(";"))
        for name, label in labels.items()
        if label in classes
    }


def _reader(kind: str) -> Callable[[str, VariantOptions], ImageSet]:
    def read(root: str, options: VariantOptions) -> ImageSet:
        return variant(kind, root, options)

    read.__doc__ = str(variant.__doc__).replace("unpacked", f"unpacked: {kind}:PATH", 1)
    return read


imagenet_c, imagenet_r, imagenet_a, imagenet_sketch, imagenet_v2, objectnet = map(_reader, LAYOUTS)
