"""Sets written in every format, read back by the libraries they are meant for, and tested on again."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from counterfoil import protocols, store
from counterfoil.cli.compare import compare, gate
from counterfoil.core.errors import BadData, UsageError
from counterfoil.core.records import Trial, Verdict
from counterfoil.core.tables import escape_formula, read_table
from counterfoil.metrics.prediction_files import read_predictions
from counterfoil.parts import images, registry
from counterfoil.protocols.imagenet_d.results import BIAS
from counterfoil.protocols.reading import write_report
from counterfoil.protocols.workspace import Given
from counterfoil.report.export import LAYOUTS, export, find_set
from counterfoil.report.gallery import collect
from tests.fakes import TinyModel
from tests.protocols.imagenet_d.world import FOREST_AND_SNOW, THINGS, make_parts, spec
from tests.worlds import FAKES, arrays
from tests.worlds import spec as fmr_spec

pytestmark = pytest.mark.xdist_group("export")

gate_app, compare_app = typer.Typer(), typer.Typer()
gate_app.command()(gate)
compare_app.command()(compare)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    return protocols.run(spec(), tmp_path_factory.mktemp("squares") / "run", given=make_parts())


def check_sums(folder: Path) -> list[str]:
    """The files of a set, whose checksums hold."""
    files = []
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        files.append(name)
    everything = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert everything == {*files, "SHA256SUMS"}
    return files


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_format_is_whole_described_and_the_same_twice(run: store.Run, tmp_path: Path, layout: str) -> None:
    told = export(run, tmp_path / "set", layout=layout, licence="cc0-1.0", note="Painted for a test.")
    files = check_sums(tmp_path / "set")
    assert told.size == FOREST_AND_SNOW
    page = (tmp_path / "set" / "README.md").read_text()
    assert "cc0-1.0" in page and "`fake:a`, `fake:b`" in page and "Painted for a test." in page
    assert "no person has looked" in page
    with (tmp_path / "set" / "metadata.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == FOREST_AND_SNOW
    assert {row["nuisance"] for row in rows} == {"forest", "snow"} and all(row["prompt"] and row["sha256"] for row in rows)
    content = json.loads((tmp_path / "set" / "set.json").read_text())
    assert content["licence"] == "cc0-1.0" and content["provenance"]["parts"]["painter"] == "fake:painter"
    export(run, tmp_path / "again", layout=layout, name="set", licence="cc0-1.0", note="Painted for a test.")
    for name in files:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "set" / name).read_bytes()


def test_croissant_is_valid_and_reads_the_rows(run: store.Run, tmp_path: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    export(run, tmp_path / "set", licence="https://creativecommons.org/publicdomain/zero/1.0/", croissant=True)
    found = croissant.Dataset(str(tmp_path / "set" / "croissant.json"))  # raises if it is not valid
    rows = list(found.records("rows"))
    assert len(rows) == FOREST_AND_SNOW
    assert rows[0]["rows/nuisance"] in (b"forest", b"snow")
    check_sums(tmp_path / "set")


def test_the_hub_library_loads_pictures_and_labels(run: store.Run, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export(run, tmp_path / "set", layout="datasets")
    found = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))["test"]
    assert len(found) == FOREST_AND_SNOW and found[0]["image"].size == (16, 16)
    assert found.features["label"].names == list(THINGS)
    assert found[0]["class"] == list(THINGS)[found[0]["label"]]
    export(run, tmp_path / "folder")  # is the library's image folder, and FiftyOne's tree: folders of classes with images alone
    (found,) = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "folder"), cache_dir=str(tmp_path / "cache")).values()
    assert len(found) == FOREST_AND_SNOW and set(found["class"]) == set(THINGS)
    tree = [path for path in (tmp_path / "folder").rglob("*") if path.is_file() and path.parent != tmp_path / "folder"]
    assert {path.parent.name for path in tree} == set(found["class"]) and {path.suffix for path in tree} == {".png"}


def test_our_own_readers_take_folders_and_shards(run: store.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "folder")
    export(run, tmp_path / "shards", layout="webdataset")
    folder = registry.create("dataset", f"folder:{tmp_path / 'folder'}", {})
    shards = registry.create("dataset", f"webdataset:{tmp_path / 'shards' / 'images-000000.tar'}", {})
    assert len(folder) == len(shards) == FOREST_AND_SNOW
    assert set(folder.classes) == set(shards.classes) == set(THINGS)
    with tarfile.open(tmp_path / "shards" / "images-000000.tar") as tar:
        assert json.loads(tar.extractfile("00000000.json").read())["kind"] == "background"  # type: ignore[union-attr]


def test_a_set_tests_models_later_with_the_same_numbers(run: store.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "set")
    later = protocols.run(
        spec(painter=None, surrogates=[], oracle=None, data=str(tmp_path / "set"), models=["fake:unseen", "fake:good"]),
        tmp_path / "later",
        given=make_parts(),
    )
    for name in ("fake:unseen", "fake:good"):
        assert later.results["models"][name]["mined"]["value"] == run.results["models"][name]["mined"]["value"]
    assert set(later.results["models"]["fake:unseen"]["by_nuisance"]) == {"background"}
    assert "leave_one_out" not in later.results


def test_a_surrogate_that_is_tested_on_the_set_is_marked_as_one(run: store.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "set")
    changes = {
        "painter": None,
        "surrogates": [],
        "oracle": None,
        "data": str(tmp_path / "set"),
        "models": ["fake:a", "fake:good"],
    }
    later = protocols.run(spec(**changes), tmp_path / "later", given=make_parts())
    assert {name: entry["role"] for name, entry in later.results["models"].items()} == {
        "fake:a": "surrogate",
        "fake:good": "unseen",
    }
    assert later.results["accuracy"]["value"] == 100  # of the model that took no part
    assert BIAS in protocols.of(later).text(later.results)
    assert "Selection bias" in write_report([later], tmp_path / "report").read_text()


def test_people_decide_what_goes_into_the_set(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts())
    kept = [trial.trial_id for trial in run.trials if trial.ending == "made"]
    run.append(verdicts=[Verdict(name, "made", "human", at < 4, 1.0, -1) for at, name in enumerate(kept[:9])])
    told = export(store.open_run(run.path), tmp_path / "set")
    assert told.size == 4
    assert "people: 4 of 4 images" in (tmp_path / "set" / "README.md").read_text()


def test_without_an_object_check_the_oracles_word_does_not_count(tmp_path: Path) -> None:
    settings = {"duplicates": None, "object_check": False}
    run = protocols.run(spec(mining=settings), tmp_path / "run", given=make_parts())
    assert run.results["models"]["fake:good"]["mined"]["n"] == FOREST_AND_SNOW + 3  # bags in the snow are in it too
    assert export(run, tmp_path / "set").size == FOREST_AND_SNOW + 3


def test_runs_of_other_protocols_are_exported_too(tmp_path: Path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 16)}"
    run = protocols.run(fmr_spec(data), tmp_path / "run")
    told = export(run, tmp_path / "set")
    accepted = sum(1 for trial in run.trials if trial.arm == "guided" and trial.validated)
    assert told.size == accepted > 0
    page = (tmp_path / "set" / "README.md").read_text()
    assert "Photos were changed step by step" in page
    assert str(tmp_path) not in page + (tmp_path / "set" / "set.json").read_text()  # no folder of this machine
    check_sums(tmp_path / "set")


def test_the_model_a_set_was_made_against_is_no_honest_test_of_it(tmp_path: Path) -> None:
    made = protocols.run(fmr_spec(f"tensors:{arrays(tmp_path / 'data.npz', 16)}"), tmp_path / "run")
    told = export(made, tmp_path / "set")
    assert told.content["surrogates"] == ["python:fakes.py:TinyModel"]
    assert "surrogates: `python:fakes.py:TinyModel`" in (tmp_path / "set" / "README.md").read_text()
    model, other = f"python:{FAKES}:TinyModel", "fake:other"
    later = protocols.run(
        protocols.parse({"protocol": "imagenet-d", "data": str(tmp_path / "set"), "models": [model, other], "size": 16}),
        tmp_path / "later",
        given=Given({other: TinyModel(seed=3)}),
    )
    assert {name: entry["role"] for name, entry in later.results["models"].items()} == {model: "surrogate", other: "unseen"}
    refused = CliRunner().invoke(gate_app, [str(later.path), "--min", "accuracy=1", "--model", model])
    assert refused.exit_code != 0 and "is a surrogate: the set was made against it" in str(refused.exception)
    assert CliRunner().invoke(gate_app, [str(later.path), "--min", "accuracy=1", "--model", other, "--point"]).exit_code == 0
    beside = protocols.run(
        protocols.parse({"protocol": "imagenet-d", "data": str(tmp_path / "set"), "models": ["fake:more"], "size": 16}),
        tmp_path / "beside",
        given=Given({"fake:more": TinyModel(seed=4)}),
    )
    compared = CliRunner().invoke(compare_app, [str(later.path), str(beside.path)]).output
    assert f"No honest test of {model}: the set was made against it or chosen by its mistakes." in compared


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_an_image_that_is_not_what_was_stored_is_refused(run: store.Run, tmp_path: Path, content: bytes | None) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    damaged = store.open_run(tmp_path / "run")
    trial = next(trial for trial in damaged.trials if trial.ending == "made")
    file = tmp_path / "run" / trial.image
    other = next(path for path in file.parents[1].rglob("*.png") if path != file)
    file.write_bytes(other.read_bytes() if content is None else content)
    with pytest.raises(UsageError, match="damaged; delete it, and the run's command makes it again"):
        export(damaged, tmp_path / "set")
    file.unlink()
    with pytest.raises(UsageError, match="missing; repeat the run's command"):
        export(damaged, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_image_is_read_once(run: store.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    read: list[str] = []
    plain = store.ImageFile.read_bytes

    def count(self: store.ImageFile) -> bytes:
        read.append(self.name)
        return plain(self)

    monkeypatch.setattr(store.ImageFile, "read_bytes", count)
    export(run, tmp_path / "set", layout=layout)
    assert len(read) == FOREST_AND_SNOW


FORMULAS = ("=cmd|'/C calc'!A0", "@SUM(1)", "+1", "-2+3", "'=1", "\tx", "plain")


def test_spreadsheet_formulas_are_escaped_and_read_back(tmp_path: Path) -> None:
    png = images.png(torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1)))
    with store.write(tmp_path / "run", spec={"protocol": "lance"}, classes=list(FORMULAS), provenance={}) as writer:
        for at, text in enumerate(FORMULAS):
            name = store.image_name(png)
            writer.add([Trial(text, "edited", at, 0, "made", 0, 0, image=name, factor="weather", prompt=text)], images=[png])
    export(store.open_run(tmp_path / "run"), tmp_path / "set")
    with (tmp_path / "set" / "metadata.csv").open(newline="") as stream:
        cells = [cell for row in csv.reader(stream) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t"))]
    known = find_set(tmp_path / "set")
    assert known is not None
    plain = {" ".join(text.split()) for text in FORMULAS}
    assert {row["class"] for row in known.pictures.values()} == plain
    assert {row["class"] for _, row in read_table(tmp_path / "set" / "metadata.csv", what="images")} == plain
    predictions = [f"{escape_formula(text)},yes,yes" for text in FORMULAS]
    (tmp_path / "a.csv").write_text("\n".join(["image_id,label,prediction", *predictions]))
    (tmp_path / "b.jsonl").write_text(
        "\n".join(json.dumps({"image_id": t, "label": "yes", "prediction": "yes"}) for t in FORMULAS)
    )
    assert read_predictions(tmp_path / "a.csv").keys.tolist() == read_predictions(tmp_path / "b.jsonl").keys.tolist()
    check_sums(tmp_path / "set")


def test_an_oracle_that_abstains_later_takes_no_word_back(tmp_path: Path) -> None:
    run = protocols.run(fmr_spec(f"tensors:{arrays(tmp_path / 'data.npz', 8)}"), tmp_path / "run")
    made = [trial for trial in run.trials if trial.image]
    run.append(verdicts=[Verdict(trial.trial_id, "made", "daylight:", None, 0.0, -1) for trial in made])
    told = export(run, tmp_path / "set")
    assert told.size == run.results["counts"]["validated"] == sum(trial.arm == "guided" for trial in made)
    (shown, *_) = collect(run, number=1, label="run", most=1).shown
    assert shown.said.oracle["made"].keeps_label is True


def test_edited_pictures_go_with_their_captions(tmp_path: Path) -> None:
    png = images.png(torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1)))
    spec_of = {"protocol": "lance", "model": "m:", "oracle": "o:"}
    with store.write(tmp_path / "run", spec=spec_of, classes=["ant", "bee"], provenance={}) as writer:
        name = store.image_name(png)
        source = Trial("7", "source", 1, 0, "made", 0, 0, clean=name)
        words = {"caption": "a photo of a bee", "prompt": "a photo of a bee\nin fog"}
        kept = Trial(
            "7", "edited", 1, 0, "made", 0, 0, image=name, variant="weather-0", factor="weather", value="in fog", **words
        )
        lost = Trial(
            "7", "edited", 1, 0, "made", 0, 0, image=name, variant="weather-1", factor="weather", value="in rain", **words
        )
        said = [Verdict(trial.trial_id, "made", "o:", trial is kept, 0.5, 1) for trial in (kept, lost)]
        writer.add([source, kept, lost], [], said, [png])
    heard: list[tuple[int, int]] = []
    told = export(store.open_run(tmp_path / "run"), tmp_path / "set", watch=lambda count, total: heard.append((count, total)))
    assert told.size == 1 and told.counts == {"weather": 1}
    assert heard == [(1, 1)], "of as many as are written, whatever the run counts as images"
    with (tmp_path / "set" / "metadata.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert row["nuisance"] == "in fog" and row["caption"] == "a photo of a bee" and row["prompt"] == "a photo of a bee in fog"
    assert "edited to match" in (tmp_path / "set" / "README.md").read_text()


def test_what_cannot_be_exported_is_said(run: store.Run, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        export(run, tmp_path / "full")
    with pytest.raises(UsageError, match="no format named 'zip'"):
        export(run, tmp_path / "set", layout="zip")
    with pytest.raises(UsageError, match="counterfoil review RUN --export"):
        export(run, tmp_path / "set", layout="label-studio")
    assert not (tmp_path / "set").exists() and not list(tmp_path.glob("*.partial"))
    nothing = protocols.run(spec(surrogates=["fake:good"], models=[]), tmp_path / "run", given=make_parts())
    with pytest.raises(UsageError, match="no image to export"):
        export(nothing, tmp_path / "set")


def test_a_damaged_set_file_is_an_error(run: store.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "set")
    assert find_set(tmp_path) is None
    (tmp_path / "set" / "set.json").write_text("{}")
    with pytest.raises(BadData, match="damaged"):
        find_set(tmp_path / "set")
