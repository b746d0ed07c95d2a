"""Public sets for ImageNet classifiers, as they are laid out, with a few small images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from counterfoil.parts import imagenet

TENCH, GOLDFISH = "n01440764", "n01443537"
LAYOUTS = {  # a file by class, and what was done to it
    "imagenet-c": ("fog/3/{}/a.JPEG", "fog 3"),
    "imagenet-r": ("{}/art_0.jpg", "style art"),
    "imagenet-a": ("{}/0.01_fox_0.9.jpg", ""),
    "imagenet-sketch": ("sketch/{}/sketch_1.JPEG", ""),
}
TWO = imagenet.classes()[423].lemmas, imagenet.classes()[559].lemmas
OTHERS = imagenet.classes()[409].lemmas, imagenet.classes()[906].lemmas


def place(root: Path, *files: str, size: tuple[int, int] = (20, 16)) -> Path:
    """Small images at these places below a folder."""
    for number, file in enumerate(files):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (40 * number, 90, 90)).save(root / file, "PNG")
    return root


def two_classes(kind: str) -> Callable[[Path], Path]:
    """A set of that layout with two images."""
    return lambda root: place(root, *(LAYOUTS[kind][0].format(each) for each in (TENCH, GOLDFISH)))


def version_two(root: Path) -> Path:
    """ImageNet-V2 with three classes."""
    return place(root, *(f"imagenetv2-matched-frequency-format-val/{number}/x.jpeg" for number in (0, 1, 10)))


def objectnet(root: Path) -> Path:
    """ObjectNet with four objects: a class each, two classes, none."""
    place(root, "images/chair/a.png", "images/tie/b.png", "images/alarm_clock/c.png", "images/unknown/d.png")
    written = {
        "folder_to_objectnet_label.json": {"chair": "Chair", "tie": "Tie", "alarm_clock": "Alarm clock", "unknown": "Air"},
        "objectnet_to_imagenet_1k.json": {"Chair": "; ".join(TWO), "Tie": OTHERS[1], "Alarm clock": OTHERS[0]},
        "pytorch_to_imagenet_2012_id.json": {"423": 0, "559": 1, "409": 2, "906": 3},
    }
    (root / "mappings").mkdir()
    for name, content in written.items():
        (root / "mappings" / name).write_text(json.dumps(content))
    (root / "mappings" / "imagenet_to_label_2012_v2").write_text("\n".join([*TWO, *OTHERS]))
    return root


def imagenet_d(root: Path) -> Path:
    """ImageNet-D with three objects, of which one stands for two classes, and questions about two of its images."""
    place(root, "background/alarm_clock/a.png", "background/mug/b.png", "material/binder_closed/c.png", size=(16, 16))
    (root / "questions").mkdir()
    rows = [
        ("image_dir", "gt_category", "top1_pred_cate", "top2_pred_cate"),
        ("background/alarm_clock/a.png", "alarm clock", "binder (closed)", "mug"),
        ("background/mug/b.png", "mug", "mug", "alarm clock"),
    ]
    (root / "questions" / "background.csv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return root
