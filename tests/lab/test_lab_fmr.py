"""The instrument reads known weights right, and its benchmark notices when it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.lab import demands

from bench import lab, results
from counterfoil import protocols
from counterfoil.core.records import Estimate

Scores = dict[str, dict[str, Estimate]]


def near(value: float, width: float = 8.0) -> Estimate:
    """A value in the middle of an interval of that width."""
    return Estimate(value, value - width / 2, value + width / 2, 390)


def read(fmr: float, *, matched: float | None = None, plain: float = 99, random: float = 99, accepted: float = 97) -> dict:
    """Return what a run gives of a model."""
    values = {"SA": 99, "VR": accepted, "PA_reconstruction": plain, "PA_random": random, "PA": fmr, "steps": 9}
    return {**{name: near(each) for name, each in values.items()}, "FMR": near(fmr), "FMR_matched": near(matched or fmr)}


def failures(scores: Scores) -> list[str]:
    """The demands that are not met."""
    return [line for passed, line in demands(scores) if not passed]


def test_models_in_their_order_with_quiet_controls_pass_everything() -> None:
    scores = {"narrow": read(34), "augmented": read(36), "diverse": read(55)}
    assert failures(scores) == [] and len(list(demands(scores))) == 2 + 2 * 3
    assert failures({"alone": read(34)}) == []  # nothing to be told apart from


@pytest.mark.parametrize(
    ("diverse", "said"),
    [
        (read(41), ["FMR, diverse less narrow: +7.0 points, overlapping", "FMR_matched, "]),
        (read(55, matched=41), ["FMR_matched, diverse less narrow: +7.0 points, overlapping"]),
        (read(20), ["IN THE WRONG ORDER", "FMR_matched, "]),
        (
            {**read(55), "FMR": Estimate(55.0, None, None, 3, "too few images for an interval")},
            ["FMR, diverse less narrow: undefined: too few"],
        ),
        (read(55, random=93.9), ["diverse: random steps move it by -5.1 points, at most 5"]),
        (read(55, plain=90, random=95.5), ["diverse: random steps move it by +5.5 points, at most 5"]),
        ({**read(55), "PA_random": Estimate(None, None, None, 0, "not run")}, ["diverse: no control (not run)"]),
        (read(55, accepted=84.9), ["diverse: 84.9 % accepted, at least 85"]),
        ({**read(55), "VR": Estimate(None, None, None, 0, "none judged")}, ["diverse: 0.0 % accepted, at least 85"]),
    ],
)
def test_a_demand_that_fails_is_reported(diverse: dict, said: list[str]) -> None:
    found = failures({"narrow": read(34), "diverse": diverse})
    assert len(found) == len(said) and all(part in line for part, line in zip(said, found, strict=True))


def test_five_points_and_85_per_cent_are_just_enough() -> None:
    assert failures({"narrow": read(34, random=94, accepted=85), "diverse": read(55, plain=90, random=95)}) == []


@pytest.mark.parametrize(("split", "diverse", "code"), [("report", 55, 0), ("report", 41, 1), ("tune", 41, 0)])
def test_the_command_fails_with_a_reading_except_where_a_setting_is_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], split: str, diverse: float, code: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.lab", "fmr", "--split", split, "--steps", "0.02,0.03", "--seeds", "0"])
    monkeypatch.setattr(lab, "run", lambda given, model, setting: read(34 if model == "lab:narrow" else diverse))
    with pytest.raises(SystemExit) as ended:
        lab.main()
    assert int(ended.value.code or 0) == code
    printed = capsys.readouterr().out
    assert printed.count("overlapping") == (0 if diverse == 55 else 2 * 2 * 2)  # generators, steps, published and matched


@pytest.mark.parametrize("name", ["lab_fmr", "lab_fmr_background", "lab_fmr_colour", "lab_fmr_cpu"])
def test_results_kept_meet_every_demand(name: str) -> None:
    scores: Scores = {}
    for row in (results.read(name) or {})["rows"]:
        ends = ("", " low", " high", " n")
        scores[row["model"]] = {key: Estimate(*(row[f"{key}{end}"] for end in ends)) for key in lab.SHOWN}
        if row["model"] == "lab:diverse":  # the last of a setting
            assert failures(scores) == [], row
            scores = {}


def measure_fmr(model: str, folder: Path) -> Estimate:
    """FMR on scenes in which neither background nor colour says anything about the garment."""
    data = {"name": "lab:wardrobe", "count": 16, "distribution": "full", "seed": 3}
    values = {"model": model, "data": data, "generator": "lab:kl", "oracle": "lab:clip", "search": {"control": False}}
    return protocols.run(protocols.parse(values), folder / model.replace(":", "-")).scores["FMR"]


@pytest.mark.xdist_group("lab_fmr")
def test_a_broken_shortcut_costs_the_model_that_took_it(tmp_path: Path) -> None:
    flawed, diverse = measure_fmr("lab:background-shortcut", tmp_path), measure_fmr("lab:diverse", tmp_path)
    assert flawed.value is not None
    assert diverse.value is not None
    assert flawed.value < diverse.value
