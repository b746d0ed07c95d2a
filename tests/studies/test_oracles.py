"""Classes that look easy because the oracle gives them up early, on outcomes made up to show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from counterfoil import protocols
from counterfoil.core.records import Estimate
from counterfoil.metrics.observations import Observations
from counterfoil.protocols.fmr.results import MEASURES, observations_of
from counterfoil.protocols.fmr.transfer import EVERY
from counterfoil.studies.oracles import by_class_weights
from counterfoil.studies.oracles import rejection_bias as bias
from tests.metrics.made import outcomes
from tests.worlds import arrays, spec

BUDGET = 5


def outcomes_of(label: list[int], made: list[int], steps: list[int], *, clean: list[int] | None = None) -> Observations:
    """Images of several classes that took so many of five steps, fewer where the oracle stopped; -1: lost before the first."""
    accepted = [int(count >= 0) for count in steps]
    found = outcomes(clean or [1] * len(label), made, validated=accepted, label=label)
    taken = np.array([max(count, 0) for count in steps], dtype=np.int64)
    return observations_of(replace(found, steps=taken, stopped=taken < BUDGET))


def rejection_bias(found: Observations) -> Estimate:
    return bias(found, EVERY["stopped"], MEASURES["FMR"])


def of_class(found: Observations, name: str, measure: str) -> float | None:
    return found.group(name).estimate(EVERY[measure]).value


def primates(images: int = 40) -> Observations:
    """Three classes: the more often the oracle stops a class, the more it seems to keep."""
    label, made, steps = [], [], []
    for kind, (stopped, kept) in enumerate(((0.0, 0.1), (0.4, 0.5), (0.8, 0.9))):
        for place in range(images):
            label.append(kind)
            made.append(int(place < kept * images))
            steps.append(1 if place < stopped * images else BUDGET)
    return outcomes_of(label, made, steps)


def test_a_class_counts_as_stopped_when_a_step_was_rejected_or_none_was_begun() -> None:
    climbs = outcomes_of([0] * 4 + [1] * 2, [1, 1, 0, 1, 0, 1], [5, 5, 2, -1, 5, 5])
    assert of_class(climbs, "ant", "stopped") == 50
    assert of_class(climbs, "bee", "stopped") == 0
    assert of_class(climbs, "ant", "FMR") == pytest.approx(100 * 2 / 3)  # of three accepted two are right


def test_classes_that_are_stopped_more_and_look_easier_are_noticed() -> None:
    found = rejection_bias(primates())
    assert found.value == 1
    assert found.low is not None and found.low > 0
    fair = outcomes_of([0] * 40 + [1] * 40, [1, 0] * 40, [5, 1] * 40)
    even = rejection_bias(fair)
    assert (even.value, even.low) in ((None, None), (0, -1))


def test_one_class_and_no_image_have_no_order() -> None:
    alone, none = outcomes_of([0] * 3, [1, 0, 1], [5, 5, 5]), outcomes_of([], [], [])
    assert rejection_bias(alone).note == "one class has nothing to be compared with"
    assert rejection_bias(none).note == "no image"


def test_classes_weigh_as_among_the_source_images() -> None:
    """Half the images are of each class; the oracle keeps all of the one and a quarter of the other."""
    found = outcomes_of([0] * 8 + [1] * 8, [1] * 8 + [0] * 8, [5] * 8 + [5] * 2 + [-1] * 6)
    assert by_class_weights(found, MEASURES["FMR"]).value == pytest.approx(50)  # PA as accepted would be 80


def test_climbs_that_were_not_stopped_by_themselves() -> None:
    found = outcomes_of([0] * 6, [1, 1, 0, 0, 1, 0], [1, 1, 5, 5, 5, 5], clean=[1, 1, 1, 1, 1, 0])
    assert found.estimate(EVERY["FMR_unstopped"]).value == pytest.approx(100 * (1 / 4) / (3 / 4))
    stopped = outcomes_of([0] * 2, [1, 1], [1, 2])
    assert stopped.estimate(EVERY["FMR_unstopped"]).note == "the oracle stopped every climb"
    lost = outcomes_of([0] * 2, [0, 0], [-1, -1])
    assert "no class has both" in by_class_weights(lost, MEASURES["FMR"]).note


@pytest.mark.parametrize(
    ("ending", "search"), [("fooled", {"stop_when_fooled": True}), ("queries", {"guidance": "search", "queries": 3})]
)
def test_a_climb_that_fooled_the_model_or_spent_its_calls_was_not_stopped_by_the_oracle(tmp_path, ending, search) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 24)}", search={"budget": 6, "step": 0.5, **search})
    run = protocols.run(chosen, tmp_path / "run")
    endings = Counter(trial.ending for trial in run.trials if trial.arm == "guided")
    assert endings[ending] > 0
    stopped = protocols.of(run).observe(run).estimate(EVERY["stopped"])
    assert stopped.value / 100 * stopped.n == pytest.approx(endings["oracle"] + endings["unvalidated"])


def test_intervals_of_fmr_by_class_hold_the_truth_about_as_often_as_they_say() -> None:
    """Class weights are drawn with the images: 95 %, not 100 % at nearly twice the width."""
    classes, images, held, widths = 8, 240, 0, []
    kept, accepting = np.linspace(0.1, 0.9, classes), np.linspace(0.2, 0.95, classes)
    for repetition in range(120):
        draw = np.random.default_rng(repetition)
        label = draw.integers(classes, size=images)
        clean, accepted = draw.random(images) < 0.9, draw.random(images) < accepting[label]
        made = draw.random(images) < kept[label]
        found = outcomes(
            clean.astype(int).tolist(), made.astype(int).tolist(), validated=accepted.astype(int).tolist(),
            label=label.tolist(), classes=tuple("abcdefgh"),
        )  # fmt: skip
        entry = by_class_weights(observations_of(found, seed=repetition), MEASURES["FMR"])
        held += entry.low <= 100 * kept.mean() / 0.9 <= entry.high
        widths.append(entry.high - entry.low)
    assert 106 <= held <= 119, held
    assert 16 < np.mean(widths) < 21


def test_fmr_by_class_of_few_images_has_no_interval_and_names_classes_left_out() -> None:
    found = outcomes_of([0, 0, 1, 1], [1, 0, 1, 1], [5, 5, -1, -1])
    entry = by_class_weights(found, MEASURES["FMR"])
    assert entry.value == pytest.approx(50) and entry.low is None
    assert "too few images" in entry.note and "1 of 2 classes" in entry.note
