"""The released ImageNet-D as its authors lay it out: images by kind of nuisance and object, and questions about them."""

from __future__ import annotations

import csv
from pathlib import Path

from counterfoil.core.errors import BadData
from counterfoil.core.tables import parse_yaml, read_text
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.parts.datasets.imagenet_variants import Layout, read_layout

LAYOUT = Layout(("kind", "object"))


def imagenet_d(root: str) -> ImageSet:
    """The released ImageNet-D, from the folder in which its archive was unpacked: 113 classes that stand for 125 of ImageNet."""
    content = parse_yaml(read_text(Path(__file__).with_suffix(".yaml")), what="ImageNet-D")
    told = {folder: each if isinstance(each, dict) else {"ids": each} for folder, each in content.items()}
    known = {folder: tuple(each["ids"]) for folder, each in told.items()}
    spoken = {known[folder]: each.get("name", folder.replace("_", " ")) for folder, each in told.items()}
    return read_layout(f"imagenet-d:{root}", root, LAYOUT, known, {}, spoken)


def read_questions(folder: Path) -> dict[str, str]:
    """The wrong name that each image is asked with in question files as ImageNet-D's authors publish them: columns by tabs.

    It is the most probable class of their models, or the second where that is the truth.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.csv")):
        for number, row in enumerate(csv.DictReader(read_text(path).splitlines(), delimiter="\t"), start=2):
            try:
                truth, first, second = (str(row[name]) for name in ("gt_category", "top1_pred_cate", "top2_pred_cate"))
                found[str(row["image_dir"])] = second if first == truth else first
            except KeyError as column:
                raise BadData(f"{path}, line {number}: has no column {column}; columns are parted by tabs") from None
    return found
