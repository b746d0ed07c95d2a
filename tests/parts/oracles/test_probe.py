"""An oracle that is fitted on the run's own images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import counterfoil
from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.datasets.arrays import from_arrays
from counterfoil.parts.oracles.ensemble import EnsembleOracle
from counterfoil.parts.oracles.probe import ProbeOptions, ProbeOracle
from counterfoil.testing import check_oracle
from tests.fakes import TinyModel

CLASSES = ["blue", "green", "red"]


class Colours:
    """Embeds an image as its mean colour, in eight dimensions."""

    size = None

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    def embed_images(self, images):
        means = torch.zeros_like(images).mean((2, 3)) if self.blind else images.mean((2, 3))
        return torch.cat([means, torch.ones(len(images), 5)], 1)

    def embed_texts(self, texts):
        raise BadPart("no words")


def photos(per_class: int = 12, *, wrong: int = 0, seed: int = 0):
    """Images of one colour each, with noise; the last `wrong` of each class carry the next class's colour."""
    draw = torch.Generator().manual_seed(seed)
    images, labels = [], []
    for label in range(3):
        for number in range(per_class):
            colour = (label + 1) % 3 if number >= per_class - wrong else label
            image = torch.full((3, 8, 8), 0.3)
            image[2 - colour] += 0.4
            images.append((image + 0.1 * torch.rand(3, 8, 8, generator=draw)).clamp(0, 1))
            labels.append(label)
    return from_arrays(torch.stack(images), np.array(labels), classes=CLASSES)


def fit_probe(data=None, **options) -> ProbeOracle:
    return ProbeOracle(Colours(), options=ProbeOptions(**options)).bind(CLASSES).fit(data or photos())


def load_all(data):
    samples = list(data)
    return torch.stack([data.load(each, None) for each in samples]), torch.tensor([each.label for each in samples]), samples


@pytest.mark.parametrize("head", ["linear", "knn"])
def test_it_knows_the_classes_it_was_fitted_on(head):
    oracle = fit_probe(head=head, k=3)
    images, labels, _ = load_all(photos(4, seed=9))
    assert oracle.judge(images, labels).keeps_label.tolist() == [1] * 12
    assert oracle.judge(images, (labels + 1) % 3).keeps_label.tolist() == [0] * 12
    assert oracle.quality.accuracy[0] == 1


def test_it_keeps_the_contract():
    check_oracle(fit_probe(), CLASSES, size=8)


def test_an_image_is_judged_by_a_head_that_has_not_seen_its_source():
    data = photos(wrong=1)
    oracle = fit_probe(data, head="knn", k=1, false_accepts=0.5)
    images, labels, samples = load_all(data)
    mislabelled = [row for row, each in enumerate(samples) if row % 12 == 11]
    seen = oracle.judge(images, labels).predicted[mislabelled]
    unseen = oracle.judge(images, labels, oracle.heads([each.image_id for each in samples])).predicted[mislabelled]
    assert seen.tolist() == labels[mislabelled].tolist(), "the head that has seen an image repeats its label"
    assert unseen.tolist() == ((labels[mislabelled] + 1) % 3).tolist()


def test_copies_of_an_image_are_never_on_both_sides():
    data = photos()
    images, labels, _ = load_all(data)
    doubled = from_arrays(torch.cat([images, images]), torch.cat([labels, labels]).numpy(), classes=CLASSES)
    oracle = fit_probe(doubled)
    heads = oracle.heads([each.image_id for each in doubled])
    assert heads[:36].tolist() == heads[36:].tolist()


def test_the_stated_share_of_false_accepts_holds_on_held_out_images():
    data = photos(20, wrong=3)
    oracle = fit_probe(data, false_accepts=0.02)
    images, labels, samples = load_all(data)
    verdicts = oracle.judge(images, labels, oracle.heads([each.image_id for each in samples]))
    answered = verdicts.keeps_label != -1
    assert int((answered & (verdicts.predicted != labels)).sum()) <= 0.02 * len(samples)
    assert oracle.quality.false_accepts == int((answered & (verdicts.predicted != labels)).sum())
    assert not bool(answered.all()), "where it is not sure enough it abstains"
    assert "abstains below" in " ".join(map(str, oracle.describe()))


def test_its_accuracy_by_class_is_told_and_kept():
    oracle = fit_probe(photos(10, wrong=3))
    told = {trait.what: trait for trait in oracle.describe()}
    assert "of 30 held-out images" in told["own accuracy"].value
    assert all(name in told["by class"].value for name in CLASSES)
    assert "often wrong about" in told["own accuracy"].caution or "itself is right" in told["own accuracy"].caution
    assert "of 10" in oracle.provenance()["own_accuracy_by_class"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ProbeOracle(Colours(blind=True)).bind(CLASSES).fit(photos()), "no better than always answering"),
        (lambda: fit_probe(photos(4)), "'blue' has 4 different readable images; it takes 5"),
        (
            lambda: ProbeOracle(Colours()).bind(CLASSES).judge(torch.rand(1, 3, 8, 8), torch.tensor([0])),
            "fit it on labelled images",
        ),
        (lambda: ProbeOptions(false_accepts=0), "a share between 0 and 1"),
        (lambda: ProbeOptions(head="forest"), "linear or knn"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(make, said):
    with pytest.raises(BadPart, match=said):
        make()


def test_in_an_ensemble_each_member_gets_its_own_head():
    class Yes:
        def bind(self, classes):
            return self

        def judge(self, images, labels):
            return Verdicts(torch.ones(len(images), dtype=torch.int8), torch.ones(len(images)), labels)

    data = photos(wrong=1)
    probe = ProbeOracle(Colours(), options=ProbeOptions(head="knn", k=1, false_accepts=0.5))
    both = EnsembleOracle([Yes(), probe]).bind(CLASSES)
    assert both.cross_fitted
    both = both.fit(data)
    images, labels, samples = load_all(data)
    heads = both.heads([each.image_id for each in samples])
    alone = probe.bind(CLASSES).fit(data)
    expected = alone.judge(images, labels, alone.heads([each.image_id for each in samples])).keeps_label
    assert both.judge(images, labels, heads).keeps_label.tolist() == [0 if each == 0 else 1 for each in expected.tolist()]
    assert both.judge(images, labels).keeps_label.tolist() == [1] * len(samples)


def test_a_run_fits_it_on_all_images_even_if_it_tests_few(tmp_path):
    run = counterfoil.evaluate(
        TinyModel(CLASSES), photos(), generator="pixels:", oracle=ProbeOracle(Colours()), limit=4, size=8, out=tmp_path / "run",
        search={"budget": 1},
    )  # fmt: skip
    told = run.provenance["parts"]["oracle"]
    assert told["own_accuracy"].endswith("on 36 held-out images")
    assert len({trial.image_id for trial in run.trials}) == 4
