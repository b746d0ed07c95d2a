"""ImageNet-D's claims on the lab, at reduced size: the world drawn exactly for the claims, the real painter for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy.stats import fisher_exact

from counterfoil import protocols, store
from counterfoil.core.errors import BadSpec
from counterfoil.parts import registry
from counterfoil.protocols.imagenet_d.grid import read_grid, read_yaml
from counterfoil.testing import check_painter
from counterfoil_lab.checker import faithfulness
from counterfoil_lab.demo import CONTROL, SURROGATES
from counterfoil_lab.demo import TESTED as MODELS
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import PLANTED_BACKGROUNDS

pytestmark = pytest.mark.xdist_group("lab imagenet-d")


def grid(*kinds: str, images: int = 1) -> dict:
    values = read_yaml("lab", what="grid")
    return {**values, "nuisances": {kind: values["nuisances"][kind] for kind in kinds}, "images": images, "sampling": "full"}


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
