"""A model may know more classes than the data: what it says then has a name, in records, galleries and downloads."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.records import Prediction
from counterfoil.core.spec import PartSpec
from counterfoil.parts import images
from counterfoil.protocols import rescoring
from counterfoil.protocols.reading import open_run, write_report
from counterfoil.protocols.workspace import Given
from counterfoil.store import Run
from tests.fakes import CLASSES, TinyModel
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets
from tests.report.pages import data
from tests.worlds import arrays, spec

WIDER = ("oak", *CLASSES, "elm")


@pytest.fixture(scope="module")
def climbed_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("beyond")
    parts = Given({"model": TinyModel(WIDER, seed=3)})
    return protocols.run(spec(f"tensors:{arrays(folder / 'data.npz', 12)}"), folder / "run", given=parts)


def name(run: Run, said: Prediction) -> str:
    return said.said or run.classes[said.predicted]


def test_a_climb_notes_what_the_model_calls_it(climbed_run: Run) -> None:
    trials, model = {trial.trial_id: trial for trial in climbed_run.trials}, TinyModel(WIDER, seed=3)
    said = list(climbed_run.predictions())
    assert {"oak", "elm"} & {each.said for each in said} and any(each.predicted >= 0 for each in said)
    for each in said:
        assert (each.predicted < 0) == (each.said in ("oak", "elm"))
        picture = images.read(climbed_run.picture(trials[each.trial_id], each.picture))
        assert name(climbed_run, each) == WIDER[int(model.logits(picture[None]).argmax())]
    made = [(trials[each.trial_id], each) for each in said if each.picture == "made"]
    for trial, each in made:
        assert (trial.path_predicted[-1], (trial.path_said or ("",))[-1]) == (each.predicted, each.said)
        assert len(trial.path_said) in (0, len(trial.path_predicted))


def test_a_model_that_comes_later_is_noted_alike(climbed_run: Run) -> None:
    rescoring.score(climbed_run, PartSpec(name="python:later:model"), built=TinyModel(WIDER, seed=3))
    own = {(each.trial_id, each.picture): each.said for each in climbed_run.predictions(climbed_run.spec["model"]["name"])}
    later = {(each.trial_id, each.picture): each.said for each in climbed_run.predictions("python:later:model")}
    assert later == own


def test_galleries_and_downloads_name_it(climbed_run: Run, tmp_path: Path) -> None:
    write_report([climbed_run], tmp_path)
    outside = next(each for each in climbed_run.predictions() if each.said and each.picture == "made")
    trial = next(trial for trial in climbed_run.trials if trial.trial_id == outside.trial_id)
    entry = next(
        each
        for each in data(tmp_path / "data/gallery-1.js")["entries"]
        if (each["id"], each["arm"]) == (trial.image_id, trial.arm)
    )
    assert entry["model"]["made"][0] == outside.said
    told = data(tmp_path / f"data/history-1-{entry['part']:03d}.js")["entries"]
    (history,) = [each["history"] for each in told if each["key"] == entry["key"]]
    assert history["predicted"][-1] == outside.said
    (table,) = tmp_path.glob("downloads/**/*.csv")
    with table.open(newline="", encoding="utf-8") as stream:
        rows = {(row["image_id"], row["arm"]): row for row in csv.DictReader(stream)}
    row = rows[trial.image_id, trial.arm]
    assert row["model_made_predicted"] == outside.said and row["path_predicted"].endswith(outside.said)


def test_a_painted_set_names_it(tmp_path: Path) -> None:
    wide = squares.SquareModel(blind=("forest",), says="tree", classes=(*squares.THINGS, "tree"))
    run = protocols.run(squares.spec(models=["fake:wide"]), tmp_path / "run", given=squares.make_parts(wide=wide))
    assert {each.said for each in run.predictions("fake:wide") if not each.correct} == {"tree"}
    assert {pair["answer"] for pair in run.results["models"]["fake:wide"]["confusions"]} == {"tree"}
    page = write_report([run], tmp_path / "report").read_text(encoding="utf-8")
    assert '<bdi class="wrong">tree</bdi>' in page


def test_an_edit_names_it(tmp_path: Path) -> None:
    class Birds(pets.Looking):
        """Sees a bird in everything."""

        classes = (*pets.CLASSES, "bird")

        def logits(self, images: torch.Tensor) -> torch.Tensor:
            return torch.tensor([0.0, 0.0, 5.0]).expand(len(images), 3)

    parts = pets.make_parts(model=Birds(), dataset=pets.Pets(count=4))
    run = protocols.run(pets.spec(), tmp_path / "run", given=parts)
    assert {(each.predicted, each.said) for each in run.predictions()} == {(-1, "bird")}
    page = write_report([run], tmp_path / "report").read_text(encoding="utf-8")
    assert "bird" in page and "another class" not in page


def test_a_notebook_shows_a_runs_numbers_and_images(climbed_run: Run) -> None:
    run = open_run(climbed_run.path)
    text = run._repr_html_()
    assert "FMR" in text and "take care: " in text and "<script" not in text
    shown = run.show(2)
    assert shown.count == 2 and shown._repr_html_().count("data:image/png;base64,") == 4
    assert repr(shown) == "<2 image pairs, for a notebook>"


def test_trials_are_a_table_too(climbed_run: Run) -> None:
    table = climbed_run.trials.to_arrow()
    assert table.column("image_id").to_pylist() == [trial.image_id for trial in climbed_run.trials]
    pytest.importorskip("pandas")
    assert len(climbed_run.trials.to_pandas()) == table.num_rows
