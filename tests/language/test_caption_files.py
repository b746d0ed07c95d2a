"""Captions from files and from data set columns."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image

from counterfoil.core.errors import BadData
from counterfoil.parts import registry
from counterfoil.parts.contracts import Caption, Captioner, Sample
from counterfoil.parts.language.caption_files import captions
from counterfoil_lab.captions import parse

NOTHING = torch.zeros(0, 3, 8, 8)


def said(path: Path | str, *samples: Sample, **options: str) -> list[Caption]:
    return captions(str(path), **options).caption(NOTHING, samples)


def test_a_table_is_looked_up_by_id_source_or_file_name(tmp_path: Path) -> None:
    file = tmp_path / "captions.csv"
    file.write_text('image_id,caption\n7,"a dog,  asleep"\ncats/one.png,a cat\n')
    found = said(file, Sample("7", 0, "x"), Sample("b", 0, "cats/one.png"), Sample("c", 0, "/data/cats/one.png"))
    assert [caption.text for caption in found] == ["a dog, asleep", "a cat", "a cat"]


def test_the_first_of_several_counts_and_gaps_have_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "captions.jsonl"
    rows = [{"id": 1, "caption": "a dog"}, {"id": 1, "caption": "the dog"}, {"id": 2, "caption": "  "}]
    file.write_text("\n".join(map(json.dumps, [*rows, {"id": 3, "caption": "a dog " * 1000}])))
    one, empty, long, missing = said(file, *(Sample(name, 0, "") for name in "1234"), prefix="a photo of ")
    assert one == Caption("a photo of a dog")
    assert "is empty" in empty.problem
    assert "6000 letters" in long.problem
    assert missing == Caption("", "captions.jsonl has no caption for '4'")


def test_cocos_layout_names_images_by_file(tmp_path: Path) -> None:
    file = tmp_path / "captions_val.json"
    file.write_text(
        json.dumps({"images": [{"id": 9, "file_name": "000009.jpg"}], "annotations": [{"image_id": 9, "caption": "A dog."}]})
    )
    assert said(file, Sample("whatever", 0, "val/000009.jpg"))[0].text == "A dog."


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", "{", "line 1 is no JSON"),
        ("a.jsonl", "[1]", "not an object"),
        ("a.jsonl", "", "holds no captions"),
        ("a.csv", "name,words\n1,a dog\n", "image_id and caption are needed"),
        ("a.json", "[]", "neither COCO"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadData, match=complaint):
        captions(str(tmp_path / name))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(BadData, match=r"cannot be read .*\.jsonl"):
        captions("nowhere.jsonl")


def test_a_data_sets_own_captions(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    (tmp_path / "set.csv").write_text(
        "path,label,caption\none.png,dog,a dog\none.png,cat,\n".replace("\none.png,cat", "\n./one.png,cat")
    )
    samples = list(registry.create("dataset", f"csv:{tmp_path / 'set.csv'}"))
    first, second = said("", *samples)
    assert first.text == "a dog"
    assert "is empty" in second.problem


def test_the_labs_scenes_come_with_their_captions() -> None:
    samples = list(registry.create("dataset", "lab:wardrobe", {"count": 3}))
    part = registry.create("captioner", "captions:")
    assert isinstance(part, Captioner)
    assert all(parse(caption.text) for caption in part.caption(NOTHING, samples))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_column_of_captions_the_first_of_several(tmp_path: Path, streaming: bool) -> None:
    datasets = pytest.importorskip("datasets")
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["dog", "cat"]),
        "said": datasets.Sequence(datasets.Value("string")),
    }
    picture = BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    rows = {
        "image": [{"bytes": picture.getvalue(), "path": None}] * 2,
        "label": [0, 1],
        "said": [["a dog ", "the dog"], []],
    }
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).save_to_disk(tmp_path / "set")
    options = {"caption": "said", **({"streaming": True, "count": 2} if streaming else {})}
    samples = list(registry.create("dataset", f"hfdata:{tmp_path / 'set'}", options))
    assert [sample.caption for sample in samples] == ["a dog", ""]
    with pytest.raises(BadData, match="no column 'words' for caption"):
        registry.create("dataset", f"hfdata:{tmp_path / 'set'}", {"caption": "words"})
