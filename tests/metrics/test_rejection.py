"""Classes that look easy because the oracle gives them up early, on outcomes made up to show it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.metrics.outcomes import Outcomes
from counterfoil.metrics.rejection import by_class, corrected, easier_when_rejected
from tests.metrics.made import outcomes

BUDGET = 5


def climbed(label: list[int], made: list[int], steps: list[int], *, clean: list[int] | None = None) -> Outcomes:
    """Images of several classes that took so many of five steps; none at all means lost before the first."""
    accepted = [int(count >= 0) for count in steps]
    found = outcomes(clean or [1] * len(label), made, validated=accepted, label=label)
    path = np.repeat(np.array(made, dtype=np.int8)[:, None], BUDGET + 1, axis=1)
    return replace(found, steps=np.array([max(count, 0) for count in steps]), path_correct=path)


def primates(images: int = 40) -> Outcomes:
    """Three classes: the more often the oracle stops a class, the more it seems to keep."""
    label, made, steps = [], [], []
    for kind, (stopped, kept) in enumerate(((0.0, 0.1), (0.4, 0.5), (0.8, 0.9))):
        for place in range(images):
            label.append(kind)
            made.append(int(place < kept * images))
            steps.append(1 if place < stopped * images else BUDGET)
    return climbed(label, made, steps)


def test_a_class_counts_as_stopped_when_a_step_was_rejected_or_none_was_begun() -> None:
    found = by_class(climbed([0] * 4 + [1] * 2, [1, 1, 0, 1, 0, 1], [5, 5, 2, -1, 5, 5]))
    assert found["ant"]["stopped"].value == 50
    assert found["bee"]["stopped"].value == 0
    assert found["ant"]["FMR"].value == pytest.approx(100 * 2 / 3)  # of three accepted two are right


def test_classes_that_are_stopped_more_and_look_easier_are_noticed() -> None:
    found = easier_when_rejected(primates())
    assert found.value == 1
    assert found.low is not None and found.low > 0
    fair = climbed([0] * 40 + [1] * 40, [1, 0] * 40, [5, 1] * 40)
    assert (easier_when_rejected(fair).value, easier_when_rejected(fair).low) in ((None, None), (0, -1))


def test_one_class_and_no_image_have_no_order() -> None:
    assert easier_when_rejected(climbed([0] * 3, [1, 0, 1], [5, 5, 5])).note == "one class has nothing to be compared with"
    assert easier_when_rejected(climbed([], [], [])).note == "no image"


def test_classes_weigh_as_among_the_source_images() -> None:
    """Half the images are of each class; the oracle keeps all of the one and a quarter of the other."""
    found = climbed([0] * 8 + [1] * 8, [1] * 8 + [0] * 8, [5] * 8 + [5] * 2 + [-1] * 6)
    assert corrected(found)["FMR_by_class"].value == pytest.approx(50)  # PA as accepted would be 80


def test_climbs_that_were_not_stopped_by_themselves() -> None:
    found = climbed([0] * 6, [1, 1, 0, 0, 1, 0], [1, 1, 5, 5, 5, 5], clean=[1, 1, 1, 1, 1, 0])
    assert corrected(found)["FMR_unstopped"].value == pytest.approx(100 * (1 / 4) / (3 / 4))
    stopped = climbed([0] * 2, [1, 1], [1, 2])
    assert corrected(stopped)["FMR_unstopped"].note == "the oracle stopped every climb"
    lost = climbed([0] * 2, [0, 0], [-1, -1])
    assert "no class has both" in corrected(lost)["FMR_by_class"].note
