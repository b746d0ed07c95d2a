"""Captions by models, from files and from columns of the data, and what is no caption."""

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
from counterfoil.parts.language.caption_checks import caption_fault, names_class
from counterfoil.parts.language.captions import CaptionOptions, TransformersCaptioner, add_prefix, captioner, captions
from counterfoil.testing import pictures
from counterfoil_lab.captions import parse
from tests.parts.language.small_models import blip2, encoder_decoder

pytestmark = pytest.mark.xdist_group("captioners")


def samples(count: int) -> list[Sample]:
    return [Sample(str(number), 0, "") for number in range(count)]


def test_the_labs_blip_says_every_attribute() -> None:
    data = registry.create("dataset", "lab:wardrobe", {"count": 24, "distribution": "full", "split": "tune"})
    blip = registry.create("captioner", "lab:blip")
    assert isinstance(blip, Captioner)
    chosen = list(data)
    images = torch.stack([data.load(sample, None) for sample in chosen])
    said = blip.caption(images, chosen)
    assert not any(caption.problem for caption in said)
    facts = [(parse(caption.text) or {}, parse(sample.caption) or {}) for caption, sample in zip(said, chosen, strict=True)]
    right = sum(told.get(name) == value for told, truth in facts for name, value in truth.items())
    assert right >= 0.95 * 8 * len(chosen)
    assert blip.caption(images[5:7], chosen[5:7]) == said[5:7]


@pytest.mark.parametrize("make", [blip2, encoder_decoder])
def test_other_kinds_run_through_the_same_code(tmp_path: Path, make: object) -> None:
    part = captioner(str(make(tmp_path)), CaptionOptions(min_tokens=5, max_tokens=8))  # type: ignore[operator]
    said = part.caption(pictures(2), samples(2))
    assert len(said) == 2
    assert all(caption.text or caption.problem for caption in said)
    assert part.provenance()["options"].startswith("CaptionOptions(min_tokens=5, max_tokens=8")


class Parrot:
    """A processor that says what it is told to, whatever the tokens are."""

    chat_template = None

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def __call__(self, **given: object) -> Parrot:
        return self

    def to(self, *where: object) -> dict[str, object]:
        return {}

    def batch_decode(self, tokens: object, **options: object) -> list[str]:
        return list(self.texts)


class Mute(torch.nn.Module):
    """A model whose answer does not matter."""

    device, dtype = torch.device("cpu"), torch.float32

    def generate(self, **given: object) -> torch.Tensor:
        return torch.zeros(1, 1)


def test_what_is_no_caption_is_a_problem() -> None:
    texts = ("A dog on a beach. ", "", "dog dog dog dog", "a sketch of a dog", "I cannot see an image")
    said = TransformersCaptioner(Mute(), Parrot(*texts), options=CaptionOptions(), name="x").caption(pictures(5), samples(5))
    assert [caption.text for caption in said[::3]] == ["a photo of a dog on a beach", "a sketch of a dog"]
    assert [caption.problem.partition(":")[0] for caption in said] == [
        "",
        "the captioner gave no text",
        "repetitive",
        "",
        "refusal",
    ]


def test_no_pictures_no_captions() -> None:
    assert TransformersCaptioner(Mute(), Parrot(), options=CaptionOptions(), name="x").caption(torch.zeros(0, 3, 8, 8), []) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog", "a photo of a dog"),
        ("The dog", "a photo of the dog"),
        ("a black and white photo of a dog", "a black and white photo of a dog"),
        ("a photo of a dog", "a photo of a dog"),
        ("a painting on a wall", "a photo of a painting on a wall"),
    ],
)
def test_the_prefix_goes_before_captions_that_do_not_say_what_the_picture_is(text: str, expected: str) -> None:
    assert add_prefix(text, "a photo of ") == expected


NOTHING = torch.zeros(0, 3, 8, 8)


def caption_of(path: Path | str, *samples: Sample, **options: str) -> list[Caption]:
    return captions(str(path), **options).caption(NOTHING, samples)


def test_a_table_is_looked_up_by_id_source_or_file_name(tmp_path: Path) -> None:
    file = tmp_path / "captions.csv"
    file.write_text('image_id,caption\n7,"a dog,  asleep"\ncats/one.png,a cat\n')
    found = caption_of(file, Sample("7", 0, "x"), Sample("b", 0, "cats/one.png"), Sample("c", 0, "/data/cats/one.png"))
    assert [caption.text for caption in found] == ["a dog, asleep", "a cat", "a cat"]


def test_the_first_of_several_counts_and_gaps_have_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "captions.jsonl"
    rows = [{"id": 1, "caption": "a dog"}, {"id": 1, "caption": "the dog"}, {"id": 2, "caption": "  "}]
    file.write_text("\n".join(map(json.dumps, [*rows, {"id": 3, "caption": "a dog " * 1000}])))
    one, empty, long, missing = caption_of(file, *(Sample(name, 0, "") for name in "1234"), prefix="a photo of ")
    assert one == Caption("a photo of a dog")
    assert "is empty" in empty.problem
    assert "6000 letters" in long.problem
    assert missing == Caption("", "captions.jsonl has no caption for '4'")


def test_cocos_layout_names_images_by_file(tmp_path: Path) -> None:
    file = tmp_path / "captions_val.json"
    file.write_text(
        json.dumps({"images": [{"id": 9, "file_name": "000009.jpg"}], "annotations": [{"image_id": 9, "caption": "A dog."}]})
    )
    assert caption_of(file, Sample("whatever", 0, "val/000009.jpg"))[0].text == "A dog."


def test_a_data_sets_own_captions(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    (tmp_path / "set.csv").write_text(
        "path,label,caption\none.png,dog,a dog\none.png,cat,\n".replace("\none.png,cat", "\n./one.png,cat")
    )
    samples = list(registry.create("dataset", f"csv:{tmp_path / 'set.csv'}"))
    first, second = caption_of("", *samples)
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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a photo of a dog on a beach", None),
        ("a sorry-looking dog and no cat", None),
        ("a man who cannot swim", None),
        ("I'm sorry, but I cannot help with that.", "refusal"),
        ("As an AI language model, I can not do this", "refusal"),
        ("Unfortunately, this is not possible", "refusal"),
        ("a dog a dog a dog", "repetitive"),
        ("very very very big dog", "repetitive"),
        ("xkcd qwrt zzgh plmk", "nonsense"),
        ("12 34 56 78", "nonsense"),
        ("dog", "nonsense"),
        ("a dog | a cat", "nonsense"),
        ("a photo of a <unk> dog", "nonsense"),
        ("a " + "d" * 40 + "og", "nonsense"),
    ],
)
def test_texts_that_are_no_captions(text: str, reason: str | None) -> None:
    found = caption_fault(text)
    assert (found[0] if found else None) == reason


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("two great white sharks", "great white shark, white shark"),
        ("a t-shirt", "T-shirt"),
        ("a dog", "dogs"),
        ("two buses", "bus"),
        ("a pile of boxes", "box"),
        ("autumn leaves", "leaf"),
        ("three knives", "knife"),
        ("strawberries", "strawberry"),
        ("loaves of bread", "loaf of bread"),
        ("computer mice", "computer mouse"),
        ("Women", "woman"),
        ("a bus", "bus"),
        ("goldfishes", "goldfish"),
    ],
)
def test_a_class_is_known_by_any_of_its_names_in_any_number(words: str, name: str) -> None:
    assert names_class(words, name)


@pytest.mark.parametrize(("words", "name"), [("a catfish", "cat"), ("tubes", "tub"), ("glasses", "grass"), ("a bush", "bus")])
def test_other_words_do_not_name_a_class(words: str, name: str) -> None:
    assert not names_class(words, name)
