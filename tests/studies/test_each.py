"""Every study runs on a user's own parts, and what it says follows from its runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from counterfoil.core.errors import RunFailed, UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.parts.datasets.arrays import from_arrays
from counterfoil.studies import runner
from counterfoil.studies.base import StudySettings
from counterfoil.studies.oracles import step_towards
from counterfoil.studies.runs import Runs
from counterfoil.studies.search import AttackedData
from tests.fakes import TinyModel
from tests.studies.conftest import MODEL, OTHER
from tests.worlds import arrays

pytestmark = pytest.mark.xdist_group("studies")

THIRD_ORACLE = PartSpec(name=f"classifier:{OTHER.rpartition(':')[0]}:Third")


def run(runs: Runs, name: str, *models: str, **options: Any) -> runner.StudyReport:
    settings = replace(runs.settings, models=tuple(PartSpec(name=each) for each in models or (MODEL,)), options=options)
    return runner.run(name, settings, runs)


def rows(report: runner.StudyReport, table: int = 0) -> dict[tuple[str, ...], Any]:
    """The estimates of a table's rows by what they are about."""
    found = report.findings.tables[table]
    titles, about = [column.title for column in found.columns], sum(column.kind == "text" for column in found.columns)
    return {
        tuple(row[:about]): {name: cell for name, cell in zip(titles[about:], row[about:], strict=True) if cell != ""}
        for row in found.rows
    }


def test_variants_compares_each_model_on_its_own_pictures(runs: Runs) -> None:
    report = run(runs, "variants", MODEL, OTHER, generators=("brightness:",))
    values, pairs = rows(report), rows(report, 1)
    assert set(values) == {(generator, model) for generator in ("pixels:l2", "brightness:") for model in (MODEL, OTHER)}
    gap = values["brightness:", MODEL]["FMR"].value - values["brightness:", OTHER]["FMR"].value
    assert pairs["brightness:", f"{MODEL} − {OTHER}"]["FMR"].value == pytest.approx(gap)
    assert not report.findings.claims  # nothing is known of these models beforehand
    assert json.loads((runs.folder / "variants.json").read_text())["tables"][0]["rows"][0][1] == MODEL


def test_transfer_shows_that_pictures_hurt_the_model_they_were_made_against_most(runs: Runs) -> None:
    report = run(runs, "transfer", MODEL, OTHER)
    values = rows(report)
    assert values[MODEL, MODEL]["harm"].value > values[MODEL, OTHER]["harm"].value
    assert "spared" in values[MODEL, OTHER] and "spared" not in values[MODEL, MODEL]


def test_step_size_searches_with_every_step_and_budget(runs: Runs) -> None:
    report = run(runs, "step-size", steps=(0.05, 2.0), budgets=(1, 3))
    values = rows(report)
    own = runs.make(PartSpec(name=MODEL), search={"step": 0.05, "budget": 1}).scores
    short = values[MODEL, "0.05", "1"]
    assert [short[name].value for name in ("PA", "steps")] == pytest.approx([own[name].value for name in ("PA", "steps")])
    assert values[MODEL, "0.05", "3"]["PA"].value <= short["PA"].value
    assert values[MODEL, "2", "3"]["VR_first"].value <= values[MODEL, "0.05", "3"]["VR_first"].value


def test_every_reading_of_a_step_is_a_run_of_its_own(runs: Runs) -> None:
    report = run(runs, "readings", spaces=(), norms=("sign", "raw"), steps=(0.001, 0.1), budget=2)
    values = rows(report)
    assert set(values) == {
        (MODEL, "", norm, unit, step) for norm in ("sign", "raw") for unit in ("scale", "absolute") for step in ("0.001", "0.1")
    }
    for one in values.values():
        assert one["VR_first"].value <= one["VR"].value and one["FMR"].n == one["PA"].n
    far = {key[2:]: one["moved, in latent deviations"].value for key, one in values.items()}
    assert far["sign", "scale", "0.1"] > far["sign", "scale", "0.001"] > 0


def test_both_controls_are_printed(runs: Runs) -> None:
    values = rows(run(runs, "controls"))
    far, long = values[MODEL, "distance"], values[MODEL, "path"]
    assert far["PA"].value == long["PA"].value and far["guided, distance"].value == long["guided, distance"].value
    assert far["random, distance"].value == pytest.approx(far["guided, distance"].value, rel=0.05)
    assert long["random, distance"].value != far["random, distance"].value
    assert far["drop_random"].value == pytest.approx(far["PA_reconstruction"].value - far["PA_random"].value, abs=1e-4)


def test_generators_reports_the_agreement_of_orders(runs: Runs) -> None:
    report = run(runs, "generators", MODEL, OTHER, generators=("brightness:",))
    assert len(rows(report)) == 4
    ((pair, values),) = rows(report, 1).items()
    assert pair == ("pixels:l2", "brightness:")
    assert -1 <= (values["tau"].value if values["tau"].value is not None else 0) <= 1


def test_oracles_are_swapped_in_the_loop_and_on_the_pictures(runs: Runs) -> None:
    other = f"classifier:{OTHER}"
    report = run(runs, "oracles", oracles=(other,))
    loops, judged, classes = rows(report), rows(report, 1), rows(report, 2)
    assert set(loops) == {("daylight:", MODEL), (other, MODEL)}
    assert judged["daylight:", other, MODEL]["agree on made"].n == loops["daylight:", MODEL]["PA"].n
    assert all(0 <= values["stopped"].value <= 100 for values in classes.values())
    assert {each.required for each in report.findings.claims} == {False}


def test_a_start_from_fgsm_pictures_is_another_run_on_the_same_images(runs: Runs) -> None:
    values = rows(run(runs, "fgsm-start", epsilon=0.02))
    clean, attacked = values[MODEL, "clean"], values[MODEL, "FGSM"]
    assert attacked["SA"].value == pytest.approx(clean["SA"].value)  # both over the accuracy on the clean images
    assert attacked["SA of the start"].value < clean["SA"].value


@pytest.mark.parametrize("name", ["greyscale", "adversarial-training"])
def test_two_models_both_ways(runs: Runs, name: str) -> None:
    assert set(rows(run(runs, name, MODEL, OTHER))) == {(a, b) for a in (MODEL, OTHER) for b in (MODEL, OTHER)}
    with pytest.raises(UsageError, match=f"{name}: takes 2 models or more, got 1"):
        run(runs, name, MODEL)


def test_augmentation_trains_on_other_images_and_tests_both_ways(runs: Runs, tmp_path: Path) -> None:
    training = f"tensors:{arrays(tmp_path / 'training.npz', 40)}"
    settings = {"training_data": training, "training_images": 40, "epochs": 12, "learning_rate": 0.003}
    report = run(runs, "augmentation", **settings)
    values = rows(report)
    tuned = f"{MODEL}, tuned"
    assert values[MODEL, tuned]["PA"].value > values[MODEL, MODEL]["PA"].value  # it has learnt from such images
    weights = sorted((runs.folder / "tuned").iterdir())
    again = run(Runs(runs.settings), "augmentation", **settings)  # found again, not trained again
    assert again.to_dict() == report.to_dict()
    assert sorted((runs.folder / "tuned").iterdir()) == weights
    with pytest.raises(UsageError, match="name other images than the tested ones"):
        run(runs, "augmentation")


def test_an_attacked_oracle_gives_way(runs: Runs) -> None:
    settings = replace(runs.settings, oracle=PartSpec(name=f"classifier:{OTHER}"))
    report = run(runs.under(settings), "oracle-attack", oracles=(f"classifier:{MODEL}",), steps=(1, 8), epsilon=0.1, step=0.02)
    values = rows(report)
    before, after = values[f"classifier:{OTHER}", "none", "0"], values[f"classifier:{OTHER}", "pgd", "8"]
    assert after["p(target)"].value > before["p(target)"].value
    assert after["target loss"].value < before["target loss"].value
    with pytest.raises(UsageError, match="daylight: gives no probabilities"):
        run(runs, "oracle-attack", oracles=())


def test_an_attacked_oracle_that_cannot_be_bound_is_named(runs: Runs, tmp_path: Path) -> None:
    place = tmp_path / "mine.py"
    methods = "    def bind(self, classes):\n        raise KeyError('no prompt')\n\n    def judge(self, images, labels): ...\n"
    place.write_text(f"class Mine:\n{methods}")
    own = runs.under(replace(runs.settings, oracle=PartSpec(name=f"python:{place}:Mine")))
    with pytest.raises(RunFailed, match=r"mine\.py:Mine failed with KeyError: 'no prompt'"):
        run(own, "oracle-attack", oracles=())


def test_an_oracle_that_is_very_sure_still_has_a_gradient() -> None:
    """A probability far below what a float resolves next to 1 is not the same as none."""

    class Sure:
        acceptance = None

        def probabilities(self, images: torch.Tensor) -> torch.Tensor:
            light = images.flatten(1).mean(1)
            return torch.stack([light * 0 + 60, light * 10], dim=1).softmax(1)

    dark = torch.full((1, 3, 4, 4), 0.2)
    moved = step_towards(Sure(), dark, source=dark, targets=torch.tensor([1]), step=0.05, epsilon=0.1)  # type: ignore[arg-type]
    assert torch.allclose(moved, dark + 0.05)


def test_surrogates_are_counted_from_none(runs: Runs) -> None:
    third = f"{MODEL.rpartition(':')[0]}:Third"
    values = rows(run(runs, "surrogates", MODEL, OTHER, third, made_against=1, most=4))
    assert list(values) == [("0",), ("1",)]  # of three models one has to take no part
    assert values["0",]["images kept %"].value == 100


def test_pictures_of_different_sizes_are_attacked_at_one(tiny: StudySettings, tmp_path: Path) -> None:
    for place, name in enumerate(("ant", "bee", "cat", "dog")):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (16 + place, 20), (60 * place, 90, 90)).save(tmp_path / "data" / name / "a.png")
    own = Runs(replace(tiny, folder=tmp_path, data=PartSpec(name=f"folder:{tmp_path / 'data'}"), oracle=THIRD_ORACLE))
    with pytest.raises(UsageError, match="--set size=224"):
        run(own, "oracle-attack", oracles=(THIRD_ORACLE.name,))
    assert run(own, "oracle-attack", oracles=(THIRD_ORACLE.name,), size=16).findings.tables


def test_attacked_data_keep_the_other_names_of_their_classes() -> None:
    """A folder of WordNet ids has them as aliases of its classes, and a model may know no other names."""
    dataset = from_arrays(torch.rand(2, 3, 16, 16), [0, 1], classes=("tench", "goldfish"))
    dataset.aliases = [("n01440764",), ("n01443537",)]
    attacked = AttackedData(dataset, TinyModel(("n01440764", "n01443537")), name="m", epsilon=0.01)
    assert attacked.aliases == dataset.aliases
    assert attacked.load(next(iter(attacked)), 16).shape == (3, 16, 16)


def test_studies_share_their_runs(tiny: StudySettings, runs: Runs) -> None:
    run(runs, "variants", MODEL, OTHER, generators=("brightness:",))
    made = set((tiny.folder / "runs").iterdir())
    run(runs, "generators", MODEL, OTHER, generators=("brightness:",))
    assert set((tiny.folder / "runs").iterdir()) == made
