"""Measurements of the lab for FMR, LANCE and ImageNet-D: the demands on a reading, and that it reads known weights right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from bench.lab import Outcome, demands, outcome, readings
from scipy.stats import fisher_exact

from bench import lab, results
from counterfoil import protocols, store
from counterfoil.core.errors import BadSpec
from counterfoil.core.records import Estimate
from counterfoil.parts import registry
from counterfoil.protocols.imagenet_d.grid import read_grid, read_yaml
from counterfoil.testing import check_painter
from counterfoil_lab.checker import faithfulness
from counterfoil_lab.demo import CONTROL, SURROGATES
from counterfoil_lab.demo import TESTED as MODELS
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import FACTORS, PLANTED_BACKGROUNDS

pytestmark = pytest.mark.xdist_group("lab imagenet-d")
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


def test_a_broken_shortcut_costs_the_model_that_took_it(tmp_path: Path) -> None:
    flawed, diverse = measure_fmr("lab:background-shortcut", tmp_path), measure_fmr("lab:diverse", tmp_path)
    assert flawed.value is not None
    assert diverse.value is not None
    assert flawed.value < diverse.value


SCENE = dict.fromkeys(FACTORS, 0)
WANTED = {**SCENE, "colour": 1}


def test_an_attribute_that_is_misread_in_the_source_does_not_count():
    found = outcome("colour", wanted=WANTED, source={**SCENE, "texture": 2}, edited={**WANTED, "texture": 2, "material": 3})
    assert found.hit and "texture" not in found.kept and "colour" not in found.kept
    assert not found.kept["material"] and found.kept["garment"]


def test_shares_are_over_all_factors():
    outcomes = [Outcome("colour", True, {"garment": True, "material": False}), Outcome("weather", False, {"garment": True})]
    whole = {one.name: one for one in readings(outcomes)}
    assert whole["asked change found"].value == 50 and whole["asked change found"].n == 2
    assert whole["material kept"].value == 0 and whole["material kept"].n == 1
    assert whole["garment kept"].holds and not whole["asked change found"].holds
    assert readings([]) == []


def grid(*kinds: str, images: int = 1) -> dict:
    values = read_yaml("lab", what="grid")
    return {**values, "nuisances": {kind: values["nuisances"][kind] for kind in kinds}, "images": images}


@pytest.fixture(scope="module")
def mined_run(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    spec = protocols.parse(
        {
            "protocol": "imagenet-d",
            "grid": grid("background", "texture", "material", images=2),
            "painter": "lab:scenes",
            "surrogates": list(SURROGATES),
            "models": list(MODELS),
            "oracle": "lab:clip",
            "engine": {"batch": 64, "batch_size": 32},
        }
    )
    return protocols.run(spec, tmp_path_factory.mktemp("lab") / "run")


def test_what_surrogates_miss_is_hard_for_classifiers_that_took_no_part(mined_run: store.Run) -> None:
    assert mined_run.results["drop"]["value"] >= 15 and mined_run.results["drop_p"] <= 0.01  # the mean of all four
    for name in set(MODELS) - {CONTROL}:
        entry = mined_run.results["models"][name]
        assert entry["drop"]["value"] >= 15 and entry["p"] <= 0.01, name  # each by itself
    points = mined_run.results["by_number"]
    assert points[-1]["accuracy"]["value"] < points[1]["accuracy"]["value"] < points[0]["accuracy"]["value"]


def test_what_is_kept_can_be_recognised(mined_run: store.Run) -> None:
    assert mined_run.results["models"][CONTROL]["mined"]["value"] >= 95  # hard for the others, but not spoilt


def test_the_planted_background_shortcut_shows_in_the_failure_modes(mined_run: store.Run) -> None:
    modes = {name: mined_run.results["models"][name]["failure_modes"] for name in ("lab:background-shortcut", "lab:diverse")}
    driven = {name: (each["painted"]["background"]["times"], each["painted"]["pictures"]) for name, each in modes.items()}
    flawed, sound = driven["lab:background-shortcut"], driven["lab:diverse"]
    table = [(flawed[0], flawed[1] - flawed[0]), (sound[0], sound[1] - sound[0])]
    assert fisher_exact(table, alternative="greater").pvalue <= 0.01
    pulls = {(pull["answer"], pull["nuisance"]) for pull in modes["lab:background-shortcut"]["pulls"]}
    assert pulls and pulls <= set(PLANTED_BACKGROUNDS.items())  # exactly what was planted, and nothing else


def test_the_exact_painter_keeps_its_contract_and_refuses_other_sentences() -> None:
    painter = registry.create("painter", "lab:scenes", {})
    prompts = [prompt.text for prompt in read_grid("lab").prompts()][:2]
    check_painter(painter, prompts=prompts)
    with pytest.raises(BadSpec, match="no sentence of the lab"):
        painter.paint(["a photo of a giraffe"], torch.tensor([1]))


def test_clip_is_asked_by_the_names_of_the_set_and_people_may_be_the_oracle(tmp_path: Path) -> None:
    clip = {"name": f"hf:{WEIGHTS / 'clip'}", "classes": "set", "templates": "an image of a {class}"}
    values = {"protocol": "imagenet-d", "grid": "lab", "limit": 24, "painter": "lab:scenes", "oracle": "human:"}
    run = protocols.run(protocols.parse({**values, "surrogates": ["lab:narrow"], "models": [clip]}), tmp_path / "run")
    counts = run.results["counts"]
    assert counts["object_open"] == 24 and counts["kept"] == counts["people_pending"] > 0
    assert run.results["models"][clip["name"]]["painted"]["value"] >= 80


def test_the_real_painter_is_faithful(tmp_path: Path) -> None:
    spec = protocols.parse(
        {
            "protocol": "imagenet-d",
            "grid": "lab",
            "limit": 6,
            "painter": "lab:diffusion",
            "surrogates": ["lab:narrow"],
            "oracle": "lab:clip",
            "seed": 4,
        }
    )
    run = protocols.run(spec, tmp_path / "run")
    found = faithfulness(run, run.trials)
    assert {each.kind: each.both.n for each in found} == {"background": 2, "material": 2, "texture": 2}
    assert sum(each.both.value * each.both.n for each in found) / 6 >= 80
