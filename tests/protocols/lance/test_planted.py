"""The planted flaws are found: real classifiers, captioner, rewriter, encoder and oracle of the lab over exact edits.

`counterfoil demo --protocol lance` does the same with the lab's diffusion editor, which takes minutes.
"""

from __future__ import annotations

import pytest

from counterfoil import protocols
from counterfoil.protocols.lance.results import lance_results
from counterfoil.protocols.workspace import Given
from counterfoil_lab.captions import PLACES
from counterfoil_lab.demo import LANCE as SPEC
from counterfoil_lab.demo import LANCE_MODELS as MODELS
from counterfoil_lab.parts import wardrobe
from counterfoil_lab.world import PLANTED_BACKGROUNDS, PLANTED_COLOURS
from tests.protocols.lance.exact import Redrawn

IMAGES = 64
BOUND = 8.0  # points that no factor may cost a classifier without a flaw

pytestmark = pytest.mark.xdist_group("lance planted")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    scenes = wardrobe("", count=IMAGES, distribution="planted")
    values = {**SPEC, "quality": {}, "realism": {}, "engine": {"batch": 64}}
    parts = Given({"dataset": scenes, "editor": Redrawn(scenes)})
    run = protocols.run(protocols.parse(values), tmp_path_factory.mktemp("planted") / "run", given=parts)
    return {model: lance_results(run, model=model) for model in MODELS}


def test_the_three_are_alike_on_their_sources(results):
    assert all(found["SA"]["value"] >= 93 for found in results.values())
    assert results[MODELS[0]]["counts"]["accepted"] >= 250


@pytest.mark.parametrize(("model", "factor"), [(MODELS[0], "background"), (MODELS[1], "adjective")])
def test_the_planted_factor_costs_most_and_that_is_no_chance(results, model, factor):
    found = results[model]
    assert found["largest"]["factor"] == factor
    assert found["factors"][factor]["p_adjusted"] <= 0.01
    assert all(entry["p_adjusted"] > 0.01 for name, entry in found["factors"].items() if name != factor)


def test_the_lead_of_the_background_is_no_chance(results):
    assert results[MODELS[0]]["largest"]["p"] <= 0.01


@pytest.mark.parametrize(
    ("model", "planted"),
    [(MODELS[0], {name: PLACES[place] for name, place in PLANTED_BACKGROUNDS.items()}), (MODELS[1], PLANTED_COLOURS)],
)
def test_planted_pairs_head_the_bias_list(results, model, planted):
    found = results[model]["bias"]
    sure = [entry for entry in found if entry["p_adjusted"] <= 0.01]
    assert len(sure) >= 3
    for entry in [*found[:5], *sure]:  # the most sensitive groups are planted pairs, and nothing else is beyond chance
        removed = entry["name"].split(" → ")[0]
        assert planted[entry["class"]] in removed or removed in planted[entry["class"]]


def test_the_classifier_without_a_flaw_keeps_its_accuracy(results):
    found = results["lab:diverse"]
    for entry in found["factors"].values():
        assert entry["drop"]["value"] <= BOUND
        assert entry["p_adjusted"] > 0.01
    assert not any(entry["p_adjusted"] <= 0.01 for entry in found["bias"])
