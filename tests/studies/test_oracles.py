"""Classes that look easy because the oracle gives them up early, on outcomes made up to show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from counterfoil import protocols
from counterfoil.protocols.fmr.results import Outcomes, read_outcomes
from counterfoil.studies.oracles import by_class, correct, rejection_bias
from tests.metrics.made import outcomes
from tests.worlds import arrays, spec

BUDGET = 5


def outcomes_of(label: list[int], made: list[int], steps: list[int], *, clean: list[int] | None = None) -> Outcomes:
    """Images of several classes that took so many of five steps; none at all means lost before the first."""
    accepted = [int(count >= 0) for count in steps]
    found = outcomes(clean or [1] * len(label), made, validated=accepted, label=label)
    path = np.repeat(np.array(made, dtype=np.int8)[:, None], BUDGET + 1, axis=1)
    return replace(found, steps=np.array([max(count, 0) for count in steps]), path_correct=path)


def ended_by_oracle(found: Outcomes) -> np.ndarray:
    """Here nothing but the oracle ends a climb before its budget is spent."""
    return found.steps < BUDGET


def primates(images: int = 40) -> Outcomes:
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
    found = by_class(climbs, ended_by_oracle(climbs))
    assert found["ant"]["stopped"].value == 50
    assert found["bee"]["stopped"].value == 0
    assert found["ant"]["FMR"].value == pytest.approx(100 * 2 / 3)  # of three accepted two are right


def test_classes_that_are_stopped_more_and_look_easier_are_noticed() -> None:
    found = rejection_bias(primates(), ended_by_oracle(primates()))
    assert found.value == 1
    assert found.low is not None and found.low > 0
    fair = outcomes_of([0] * 40 + [1] * 40, [1, 0] * 40, [5, 1] * 40)
    even = rejection_bias(fair, ended_by_oracle(fair))
    assert (even.value, even.low) in ((None, None), (0, -1))


def test_one_class_and_no_image_have_no_order() -> None:
    alone, none = outcomes_of([0] * 3, [1, 0, 1], [5, 5, 5]), outcomes_of([], [], [])
    assert rejection_bias(alone, ended_by_oracle(alone)).note == "one class has nothing to be compared with"
    assert rejection_bias(none, ended_by_oracle(none)).note == "no image"


def test_classes_weigh_as_among_the_source_images() -> None:
    """Half the images are of each class; the oracle keeps all of the one and a quarter of the other."""
    found = outcomes_of([0] * 8 + [1] * 8, [1] * 8 + [0] * 8, [5] * 8 + [5] * 2 + [-1] * 6)
    assert correct(found, ended_by_oracle(found))["FMR_by_class"].value == pytest.approx(50)  # PA as accepted would be 80


def test_climbs_that_were_not_stopped_by_themselves() -> None:
    found = outcomes_of([0] * 6, [1, 1, 0, 0, 1, 0], [1, 1, 5, 5, 5, 5], clean=[1, 1, 1, 1, 1, 0])
    assert correct(found, ended_by_oracle(found))["FMR_unstopped"].value == pytest.approx(100 * (1 / 4) / (3 / 4))
    stopped = outcomes_of([0] * 2, [1, 1], [1, 2])
    assert correct(stopped, ended_by_oracle(stopped))["FMR_unstopped"].note == "the oracle stopped every climb"
    lost = outcomes_of([0] * 2, [0, 0], [-1, -1])
    assert "no class has both" in correct(lost, ended_by_oracle(lost))["FMR_by_class"].note


@pytest.mark.parametrize(
    ("ending", "search"), [("fooled", {"stop_when_fooled": True}), ("queries", {"guidance": "search", "queries": 3})]
)
def test_a_climb_that_fooled_the_model_or_spent_its_calls_was_not_stopped_by_the_oracle(tmp_path, ending, search) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 24)}", search={"budget": 6, "step": 0.5, **search})
    run = protocols.run(chosen, tmp_path / "run")
    endings = Counter(trial.ending for trial in run.trials if trial.arm == "guided")
    assert endings[ending] > 0
    found = read_outcomes(run)
    stopped = by_class(found, found.stopped)
    assert sum(row["stopped"].value / 100 * row["stopped"].n for row in stopped.values()) == pytest.approx(endings["oracle"])


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
        entry = correct(found, ended_by_oracle(found), seed=repetition)["FMR_by_class"]
        held += entry.low <= 100 * kept.mean() / 0.9 <= entry.high
        widths.append(entry.high - entry.low)
    assert 106 <= held <= 119, held
    assert 16 < np.mean(widths) < 21


def test_fmr_by_class_of_few_images_has_no_interval_and_names_classes_left_out() -> None:
    found = outcomes_of([0, 0, 1, 1], [1, 0, 1, 1], [5, 5, -1, -1])
    entry = correct(found, ended_by_oracle(found))["FMR_by_class"]
    assert entry.value == pytest.approx(50) and entry.low is None
    assert "too few images" in entry.note and "1 of 2 classes" in entry.note
