"""Captioners of transformers: the lab's BLIP says what is there, and other kinds run through the same code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.contracts import Captioner, Sample
from counterfoil.parts.language.captioners import TransformersCaptioner, Wording, captioner, prefixed
from counterfoil.testing import pictures
from counterfoil_lab.captions import parse
from tests.language.small_models import blip2, encoder_decoder, llama

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
    part = captioner(str(make(tmp_path)), least_tokens=5, most_tokens=8)  # type: ignore[operator]
    said = part.caption(pictures(2), samples(2))
    assert len(said) == 2
    assert all(caption.text or caption.problem for caption in said)
    assert part.provenance()["wording"].startswith("Wording(least_tokens=5, most_tokens=8")


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
    texts = ("A dog on a beach. ", "", "dog dog dog dog", "a sketch of a dog", "I cannot see a picture")
    said = TransformersCaptioner(Mute(), Parrot(*texts), wording=Wording(), name="x").caption(pictures(5), samples(5))
    assert [caption.text for caption in said[::3]] == ["a photo of a dog on a beach", "a sketch of a dog"]
    assert [caption.problem.partition(":")[0] for caption in said] == ["", "the captioner said nothing", "looping", "", "refusal"]


def test_no_pictures_no_captions() -> None:
    assert TransformersCaptioner(Mute(), Parrot(), wording=Wording(), name="x").caption(torch.zeros(0, 3, 8, 8), []) == []


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
    assert prefixed(text, "a photo of ") == expected


def test_what_cannot_caption_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadPart, match="is not one that answers questions about pictures"):
        captioner(str(llama(tmp_path)))
    with pytest.raises(BadPart, match="tokens are at least"):
        Wording(least_tokens=9, most_tokens=3)
    with pytest.raises(BadWeights, match="no such folder"):
        captioner("./nowhere")
