"""The doctor names the mistake in each of many set-ups that were broken on purpose, and none in those that were not."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import BadImage
from counterfoil.doctor import Diagnosis, examine, set_ups
from counterfoil.parts import registry
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.protocols.workspace import Given
from tests.doctor import broken

pytestmark = pytest.mark.xdist_group("doctor")
IMAGES = 48
COLOUR = ("BGR", "read as BGR")  # the narrow model does not care about colour, the one with a colour shortcut does


@cache
def oracle():
    return registry.create("oracle", "classifier:lab:augmented")  # quicker than CLIP


def diagnose(model, data=None, images: int = IMAGES) -> Diagnosis:
    values = {"model": "given:", "data": "lab:wardrobe", "generator": "pixels:", "oracle": "given:"}
    given = {"model": model, "oracle": oracle()} | ({"dataset": data} if data else {})
    (setup,) = set_ups(protocols.parse(values), Given(given))
    return examine(setup, images=images)


def healthy(name: str = "narrow") -> ModuleModel:
    return registry.create("model", f"lab:{name}")


def mistakes(found: Diagnosis) -> list[str]:
    return [finding.mistake for finding in found.findings if finding.severity == "mistake"]


@pytest.mark.parametrize("name", ["narrow", "vit"])
def test_nothing_is_suspected_where_nothing_is_wrong(name):
    found = diagnose(healthy(name))
    assert mistakes(found) == []
    titles = [section.title for section in found.sections]
    assert titles == ["data and labels", "accuracy", "gradients", "reconstruction", "cost"]
    slope = dict(found.sections[2].rows)["slope by differences / gradient"]
    assert 0.7 < float(slope.split()[0]) < 1.3


@pytest.mark.parametrize("name", broken.MODELS)
def test_names_what_is_wrong_with_the_model(name):
    spoil, mistake = broken.MODELS[name]
    found = diagnose(spoil(healthy("colour-shortcut" if name in COLOUR else "narrow")), coloured_scenes(name))
    assert mistakes(found) == [mistake]


@pytest.mark.parametrize("name", broken.DATA)
def test_names_what_is_wrong_with_the_pictures(name):
    turn, mistake = broken.DATA[name]
    data = coloured_scenes(name) or registry.create("dataset", "lab:wardrobe")
    found = diagnose(healthy("colour-shortcut" if name in COLOUR else "narrow"), broken.Turned(data, turn))
    assert mistakes(found) == [mistake]


def coloured_scenes(name: str):
    """Scenes in which colour tells the class."""
    return registry.create("dataset", "lab:wardrobe", {"distribution": "colour-shortcut"}) if name in COLOUR else None


@pytest.mark.parametrize(("images", "severity", "mistake"), [(48, "caution", "inputs"), (240, "mistake", "normalisation")])
def test_a_mistake_that_costs_little_is_a_caution_until_there_are_images_enough(images, severity, mistake):
    whole = healthy()
    found = diagnose(broken.remade(whole, mean=None, std=None), images=images)
    (finding,) = [each for each in found.findings if each.mistake in ("inputs", "normalisation")]
    assert (finding.severity, finding.mistake) == (severity, mistake)
    assert "mean 0.5 and standard deviation 0.5" in finding.says + finding.evidence


def test_a_head_with_smoothed_labels_and_the_right_normalisation_is_not_accused():
    whole = healthy()
    found = diagnose(broken.remade(whole, broken.SmoothedHead(whole.module)))
    assert mistakes(found) == [] and found.healthy
    (caution,) = [finding for finding in found.findings if finding.mistake == "inputs"]
    assert "accuracy does not rise beyond chance" in caution.says


def test_every_candidate_that_passes_is_listed():
    (finding,) = diagnose(broken.other_normalisation(healthy())).findings
    assert "mean 0.5 and standard deviation 0.5" in finding.says
    assert "also passes: the network expects none, pixels in [0, 1]" in finding.evidence


class OutOfSight:
    """A model that shows nothing of how it prepares images, and does it wrongly: with ImageNet's mean and deviation."""

    differentiable = True
    size = 64

    def __init__(self, inner: ModuleModel) -> None:
        self.classes, self.aliases = inner.classes, inner.aliases
        mean, std = (torch.tensor(broken.IMAGENET[name])[:, None, None] for name in ("mean", "std"))
        self.logits = lambda images: inner.module((images - mean) / std)


def test_a_normalisation_that_cannot_be_seen_is_named_too():
    (finding,) = [each for each in diagnose(OutOfSight(healthy())).findings if each.severity == "mistake"]
    assert finding.mistake == "normalisation"
    assert "mean 0.5 and standard deviation 0.5" in finding.says and "now gets: ImageNet's" in finding.says


def test_a_network_that_saturates_out_of_range_is_not_blamed_for_its_gradients_too():
    whole = healthy()
    saturating = broken.Wrapped(whole.module, before=lambda images: images.clamp(-1.2, 1.2))
    found = diagnose(broken.remade(whole, saturating, mean=(0.0,) * 3, std=(1 / 255,) * 3))
    assert mistakes(found) == ["input range"]
    (gradients,) = [finding for finding in found.findings if finding.mistake == "gradients"]
    assert gradients.severity == "caution" and "saturates" in gradients.remedy


def test_more_outputs_than_names_are_said_to_be_a_background_class():
    whole = healthy()
    module = broken.Wrapped(whole.module, after=lambda logits: torch.nn.functional.pad(logits, (1, 0)))
    (finding,) = diagnose(broken.remade(whole, module)).findings
    assert finding.mistake == "number of outputs"
    assert "9 outputs for 8 names" in finding.says
    assert "background" in finding.remedy


def test_logits_that_are_not_finite_end_the_examination():
    whole = healthy()
    (finding,) = diagnose(broken.remade(whole, broken.Wrapped(whole.module, after=lambda logits: logits / 0))).findings
    assert finding.mistake == "not finite"


def test_wrong_labels_are_not_blamed_on_the_model():
    data = registry.create("dataset", "lab:wardrobe")

    class Mislabelled(broken.Turned):
        def __iter__(self):
            for number, sample in enumerate(self.inner):
                yield type(sample)(sample.image_id, (sample.label * 3 + number) % 8, sample.source)

    found = diagnose(healthy(), Mislabelled(data, lambda image: image))
    assert "labels of the data" in [finding.mistake for finding in found.findings]


@pytest.mark.parametrize(("spoilt", "severity"), [(2, "caution"), (15, "mistake")])
def test_pictures_that_cannot_be_read_are_counted_and_told(spoilt, severity):
    data = registry.create("dataset", "lab:wardrobe", {"count": 16})
    bad = {sample.image_id for sample in list(data)[:spoilt]}

    class Spoilt(broken.Turned):
        def load(self, sample, size):
            if sample.image_id in bad:
                raise BadImage(f"{sample.image_id}: cut short")
            return super().load(sample, size)

    found = diagnose(healthy(), Spoilt(data, lambda image: image), images=16)
    (finding,) = [each for each in found.findings if each.mistake == "images"]
    assert finding.severity == severity
    assert finding.says.startswith(f"{spoilt} of the 16 images tried cannot be read")
    assert "cut short" in finding.evidence
