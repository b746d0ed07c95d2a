"""Quality control: each check, and which edit of a sweep is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import torch
from torch.nn import functional

from counterfoil.core.spec import RunSpec
from counterfoil.protocols.lance import CHECKS, QualitySpec
from counterfoil.protocols.lance.answers import frechet
from counterfoil.protocols.lance.captions import embed_images, embed_texts
from counterfoil.protocols.lance.images import Similarities, select_edit, similarities
from counterfoil.protocols.workspace import Workspace
from tests.protocols.lance.world import Eye, draw

GOOD = Similarities(image_image=0.8, source_text=0.3, edited_text=0.3, old_text=0.2, directional=0.5)
BARS = QualitySpec()


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({}, None),
        ({"image_image": 0.69}, "image changed too much"),
        ({"source_text": 0.19}, "caption does not fit"),
        ({"edited_text": 0.19, "old_text": 0.1}, "edit does not fit"),
        ({"directional": 0.19}, "wrong direction"),
        ({"old_text": 0.31}, "still the old words"),
        ({"directional": float("nan")}, "wrong direction"),
    ],
)
def test_each_check_turns_away_what_it_is_for(change, check):
    problem = replace(GOOD, **change).fault(BARS)
    assert (problem[0] if problem else None) == check
    assert check is None or check in CHECKS


def test_bars_are_reached_by_being_equal():
    at_the_bars = Similarities(0.7, 0.2, 0.2, 0.1, 0.2)
    assert at_the_bars.fault(BARS) is None


def test_the_best_or_the_last_of_those_that_pass_is_kept():
    sweep = [replace(GOOD, directional=value) for value in (0.3, 0.6, 0.4, 0.1)]
    assert select_edit(sweep, BARS).index == 1
    assert select_edit(sweep, BARS.model_copy(update={"choose": "last"})).index == 2


def test_the_nearest_miss_speaks_for_a_sweep_that_fails():
    sweep = [replace(GOOD, image_image=0.1), replace(GOOD, directional=0.15), replace(GOOD, directional=0.1)]
    chosen = select_edit(sweep, BARS)
    assert (chosen.index, chosen.check, chosen.reason) == (1, "wrong direction", "0.150 is below 0.2")


def test_similarities_are_cosines_of_the_encoder():
    before, after = "a photo of a red dog on a beach", "a photo of a red dog on a road"
    eye = Eye()
    spec = RunSpec(protocol="lance")
    space = Workspace(spec, torch.device("cpu"), [], None, {"encoder": eye}, [])
    embedded = embed_images(space, [draw(before), draw(after), draw(before)])
    old, new = embed_texts(space, [before, after]).values()
    found = similarities(embedded[0], embedded[1:], before=old, after=new)
    images = functional.normalize(eye.embed_images(torch.stack([draw(before), draw(after)])), dim=-1)
    texts = functional.normalize(eye.embed_texts([before, after]), dim=-1)
    assert found[0].image_image == pytest.approx(float(images[0] @ images[1]), abs=1e-6)
    assert found[0].edited_text == pytest.approx(float(images[1] @ texts[1]), abs=1e-6)
    assert found[0].old_text == pytest.approx(float(images[1] @ texts[0]), abs=1e-6)
    expected = functional.cosine_similarity(images[1] - images[0], texts[1] - texts[0], dim=0)
    assert found[0].directional == pytest.approx(float(expected), abs=1e-5)
    assert found[1].directional == 0  # a image that did not change has no direction


# The Fréchet distance against independent computations


def test_distance_is_that_of_the_matrix_square_root():
    generator = np.random.default_rng(1)
    one, two = generator.normal(size=(200, 5)), generator.normal(size=(150, 5)) @ generator.normal(size=(5, 5)) + 1
    root = scipy.linalg.sqrtm(np.cov(one.T) @ np.cov(two.T)).real
    expected = ((one.mean(0) - two.mean(0)) ** 2).sum() + np.trace(np.cov(one.T) + np.cov(two.T) - 2 * root)
    value, note = frechet(one, two)
    assert value == pytest.approx(expected, rel=1e-6)
    assert note == ""


def test_the_same_set_is_no_distance_away():
    rows = np.random.default_rng(2).normal(size=(40, 4))
    assert frechet(rows, rows)[0] == pytest.approx(0, abs=1e-8)


def test_too_few_images_are_said_to_be_so():
    rows = np.random.default_rng(3).normal(size=(10, 20))
    assert frechet(rows, rows[:1]) == (None, "too few images: 10 and 1")
    assert frechet(rows, rows)[1] == "10 images for 20 features: biased upwards"


def test_the_bias_is_told_of_well_above_as_many_images_as_features():
    rows = np.random.default_rng(4).normal(size=(300, 20))
    value, note = frechet(rows[:150], rows[150:])
    assert value > 0 and note == "150 images for 20 features: biased upwards"  # two halves of one population
    rows = np.random.default_rng(4).normal(size=(1200, 20))
    assert frechet(rows[:600], rows[600:])[1] == ""
