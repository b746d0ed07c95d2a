"""The oracle's audit, image by image."""

from __future__ import annotations

import json
import math
import random

import pytest

from counterfoil.protocols.fmr.results import AUDIT_MEANINGS, audit, fmr_results
from tests.metrics.made import outcomes


def test_its_numbers_agree_with_loops() -> None:
    draw = random.Random(0)
    rows = [tuple(int(draw.random() < chance) for chance in (0.8, 0.7, 0.5, 0.9)) for _ in range(90)]
    clean, accepted, made, seen = zip(*rows, strict=True)
    label = [number % 3 for number in range(90)]
    found = audit(outcomes(clean, made, validated=accepted, oracle_clean=seen, label=label))

    kept = [m if a else c for c, a, m, _ in rows]
    lost = [m if a else 0 for c, a, m, _ in rows]
    wanted = {
        "clean_accuracy": sum(seen) / 90, "lost": 1 - sum(accepted) / 90, "PA_kept": sum(kept) / 90, "PA_lost": sum(lost) / 90,
        "FMR_kept": sum(kept) / sum(clean), "FMR_lost": sum(lost) / sum(clean),
    }  # fmt: skip
    assert set(wanted) == set(AUDIT_MEANINGS)
    for name, value in wanted.items():
        assert found[name]["value"] == pytest.approx(100 * value), name
        assert found[name]["n"] == 90
        assert found[name]["low"] < found[name]["value"] < found[name]["high"]
    for place, name in enumerate(("ant", "bee", "cat")):
        mine = accepted[place::3]
        assert found["per_class"][name]["acceptance"]["value"] == pytest.approx(100 * sum(mine) / 30)
        assert found["per_class"][name]["clean_accuracy"]["value"] == pytest.approx(100 * sum(seen[place::3]) / 30)


def test_where_nothing_is_lost_the_bounds_are_pa_itself() -> None:
    found = audit(outcomes([1, 1, 0, 1], [1, 0, 0, 1]))
    assert found["lost"]["value"] == 0
    assert found["PA_kept"]["value"] == found["PA_lost"]["value"] == 50
    assert found["FMR_kept"]["value"] == found["FMR_lost"]["value"] == pytest.approx(100 * 2 / 3)


@pytest.mark.parametrize(
    ("made", "notes"),
    [
        (outcomes([], []), {"lost": "no image the oracle has decided on", "FMR_kept": "no image the oracle has decided on"}),
        (outcomes([0, 0], [0, 1]), {"FMR_lost": "SA is 0"}),
        (outcomes([1, 1], [0, 0], validated=[-1, -1]), {"PA_kept": "no image the oracle has decided on"}),
        (outcomes([1, 1], [1, 1], oracle_clean=[-2, -2]), {"clean_accuracy": "not asked"}),
        (outcomes([1], [1]), {}),
        (outcomes([1, 1], [0, 0], validated=[0, 0]), {}),
    ],
)
def test_degenerate_cases_have_reasons_and_no_nan(made: object, notes: dict[str, str]) -> None:
    found = audit(made)  # type: ignore[arg-type]
    assert "NaN" not in json.dumps(found)
    for name in AUDIT_MEANINGS:
        if name in notes:
            assert found[name]["value"] is None
            assert notes[name] in found[name]["note"]
        else:
            assert found[name]["value"] is None or math.isfinite(found[name]["value"])


def test_every_runs_results_carry_the_audit_and_it_is_the_same_as_asked_for_alone() -> None:
    made = outcomes([1, 1, 0, 1], [1, 0, 0, 0], validated=[1, 0, 1, 1], label=[0, 0, 1, 1])
    results = fmr_results(made, seed=3)
    assert results["audit"] == audit(made, seed=3)
    assert results["oracle"]["clean_accuracy"] == results["audit"]["clean_accuracy"]
    assert results["audit"]["lost"]["value"] == 25
    assert results["audit"]["per_class"]["ant"]["acceptance"]["value"] == 50
