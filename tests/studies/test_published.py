"""The published tables: copied right, as far as their own arithmetic can say, printed with runs next to them, and run."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
import yaml

from counterfoil import protocols, store
from counterfoil.core.errors import CounterfoilError, UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.studies import published
from counterfoil.studies.base import StudySettings
from counterfoil.studies.published import same_words
from counterfoil.studies.runs import Runs
from tests.cli.stored import call, store_run
from tests.fakes import CLASSES
from tests.studies.conftest import MODEL, OTHER
from tests.worlds import arrays


def rows(number: int) -> list[dict]:
    table = published.load(f"fmr/{number}")
    return [table.row(place) for place in range(len(table.rows))]


def test_all_fifteen_tables_are_there_and_rectangular() -> None:
    assert published.names() == [*(f"fmr/{number}" for number in range(1, 16)), "imagenet-d/0"]
    for table in map(published.load, published.names()):
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.labels
        assert table.numbers or table.number == 4
        for column in zip(*table.rows, strict=True):
            assert len({isinstance(cell, str) for cell in column}) == 1
        for each in table.also:
            assert each.value != table.row(each.row)[each.column]


@pytest.mark.parametrize("number", [1, 2])
def test_fmr_is_pa_over_sa(number: int) -> None:
    for row in rows(number):
        assert row["FMR"] == pytest.approx(100 * row["PA"] / row["SA"], abs=0.011), row


def test_table_three_has_the_sa_of_table_two_and_its_vqgan_column() -> None:
    second = {row["model"]: row for row in rows(2)}
    for row in rows(3):
        assert row["FMR"] == pytest.approx(100 * row["PA"] / second[row["model"]]["SA"], abs=0.011), row
        if row["generator"] == "VQGAN":
            assert (row["PA"], row["FMR"]) == (second[row["model"]]["PA"], second[row["model"]]["FMR"])
    assert len(rows(3)) == 35


def test_the_nine_class_row_is_the_run_with_the_large_step() -> None:
    """Pooled over accepted images, Table 13 gives Table 1's PA and FMR; Table 14 gives another FMR."""
    classes = [row for row in rows(13) if row["class"] != "all"]
    accepted = sum(row["VR"] for row in classes)
    pooled = sum(row["SA"] * row["FMR"] / 100 * row["VR"] for row in classes) / accepted
    first = next(row for row in rows(1) if row["data"] == "9-class ImageNet")
    assert first["PA"] == pytest.approx(pooled, abs=0.01)
    assert first["FMR"] == rows(13)[-1]["FMR"] != rows(14)[-1]["FMR"]
    assert [each.value for each in published.load("fmr/1").also if each.row == 2] == [rows(14)[-1]["FMR"]]


def test_table_fourteens_mean_needs_the_value_from_the_text() -> None:
    classes = [row["FMR"] for row in rows(14) if row["class"] != "all"]
    printed, text = rows(14)[5]["FMR"], 28.11
    assert sum(classes) / 9 == pytest.approx(23.83, abs=0.005)
    assert (sum(classes) - printed + text) / 9 == pytest.approx(rows(14)[-1]["FMR"], abs=0.005)


def test_one_saving_is_of_time_and_the_other_of_speed() -> None:
    nine, imagenet = rows(12)
    assert nine["saving % as printed"] == pytest.approx(100 * (1 - nine["sparse s"] / nine["dense s"]), abs=0.05)
    assert imagenet["saving % as printed"] == pytest.approx(100 * (imagenet["dense s"] / imagenet["sparse s"] - 1), abs=0.05)
    assert published.load("fmr/12").also[0].value == pytest.approx(
        100 * (1 - imagenet["sparse s"] / imagenet["dense s"]), abs=0.05
    )


def test_every_value_for_the_cifar_model_is_named_where_one_of_them_stands() -> None:
    values = {54.88, 54.17, 57.79, 57.80}
    assert {each.value for each in published.load("fmr/1").also if each.row == 1} == values - {54.88}
    assert {each.value for each in published.load("fmr/6").also} == values - {54.17}


def test_no_such_table() -> None:
    with pytest.raises(UsageError, match="no such table"):
        published.load("fmr/16")


@pytest.mark.parametrize(
    ("published", "ours", "same"),
    [
        ("ResNet50", "timm:resnet50.a1_in1k", True),
        ("CIFAR-10", "torchvision-data:CIFAR10", True),
        ("CIFAR-10", "torchvision-data:CIFAR100", False),
        ("MNIST", "torchvision-data:FashionMNIST", False),
    ],
)
def test_names_are_the_same_in_other_spellings(published: str, ours: str, same: bool) -> None:
    assert same_words(published, ours) is same


@pytest.mark.parametrize("number", range(1, 16))
def test_every_table_prints_by_itself(number: int) -> None:
    code, output = call("study", f"fmr/{number}")
    assert code == 0
    assert output.startswith(f"Table {number}: ")
    assert "our runs" not in output


def test_values_that_contradict_each_other_are_all_shown() -> None:
    output = call("study", "fmr/1")[1]
    assert "30.28*" in output
    for value in ("54.88*", "54.17", "57.8 ", "57.79", "23.94"):
        assert value in output


def test_a_run_stands_beside_the_row_it_is_meant_for_and_says_what_differs(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a", "timm:lenet")
    values = store.open_run(path).results
    code, output = call("study", "fmr/1", path)
    assert code == 0
    row = next(line for line in output.splitlines() if line.startswith("MNIST"))
    assert row.split()[1:5] == ["LeNet", "99.09", "27.78", "28.04"]
    assert f"{values['SA']['value']:.1f} ({values['SA']['low']:.1f} to {values['SA']['high']:.1f})" in row
    differences = (
        "data lab:wardrobe, 60 images",
        "oracle o",
        "generator lab:vqgan",
        "step 0.01, unit scale",
        "budget of 3 steps",
        "gradient normalised by l2",
        "images of 64 px",
    )
    for mark, said in zip(row.split()[-7:], differences, strict=True):
        assert f"  {mark}  {said} (published: " in output
    assert "model timm:lenet (published" not in output


def test_a_run_may_be_put_beside_a_row_by_name(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a")
    output = call("study", "fmr/1", f"Swin={path}")[1]
    row = next(line for line in output.splitlines() if " Swin " in line)
    assert row.count(" to ") == 3
    assert "model lab:narrow (published: Swin)" in output
    code, complaint = call("study", "fmr/1", f"Swan={path}")
    assert code == 2
    assert "'Swan': no such row in Table 1; it has LeNet" in complaint


def test_a_run_of_no_published_model_gets_a_row_of_its_own(tmp_path: Path) -> None:
    lines = call("study", "fmr/1", store_run(tmp_path / "a"), store_run(tmp_path / "b", "timm:resnet18"))[1].splitlines()
    for name in ("lab:narrow", "timm:resnet18"):  # there are two ResNet18, on data that this run has not seen
        row = next(line for line in lines if line.split()[1:2] == [name])
        assert row.split()[2:5] == ["–", "–", "–"]
    assert sum(" to " in line for line in lines) == 2


def test_tables_by_class_and_by_scored_model(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a", "timm:resnet18")
    output = call("study", "fmr/13", path)[1]
    assert next(line for line in output.splitlines() if " Cat " in line).count(" to ") == 3  # the run has cats
    assert next(line for line in output.splitlines() if " all " in line).count(" to ") == 3
    assert sum(" to " in line and "timm:resnet18  ant" in line for line in output.splitlines()) == 1
    output = call("study", "fmr/8", path)[1]
    assert "timm:resnet18  timm:resnet18" in output


def test_wrong_use(tmp_path: Path) -> None:
    assert call("study", "fmr/16") == (2, call("study", "fmr/16")[1])
    assert "no such table" in call("study", "fmr/16")[1]
    code, complaint = call("study", "fmr/12", store_run(tmp_path / "a"))
    assert (code, "leave the runs out" in complaint) == (2, True)
    assert call("study", "fmr/1", tmp_path / "nowhere")[0] == 2


@pytest.mark.parametrize(
    ("templates", "departs"),
    [
        ("an image of {}", False),
        ("an image of {class}", False),
        (["an image of {class}"], False),
        ("a photo of a {class}", True),
        (["a photo of a {class}", "a {class}"], True),
    ],
)
def test_the_papers_own_prompt_is_no_departure_and_others_are_printed_whole(
    tmp_path: Path, templates: object, departs: bool
) -> None:
    path = store_run(tmp_path / "a", "timm:lenet", oracle={"name": "o", "options": {"templates": templates}})
    output = call("study", "fmr/1", path)[1]
    assert ("oracle asked" in output) is departs
    if departs:
        assert "oracle asked 'a photo of a {class}'" in output


def test_the_other_reading_of_acceptance_is_printed(tmp_path: Path) -> None:
    path = store_run(tmp_path / "a", "timm:lenet", search={"accept": "agreement"})
    assert "accepted by agreement with the oracle's answer on the source" in call("study", "fmr/1", path)[1]


def test_a_table_of_ones_own_is_printed_and_run(tiny: object, tmp_path: Path) -> None:
    """Rows whose parts are given run; what the others lack is named."""
    file = tmp_path / "mine.yaml"
    values = {
        "title": "Mine",
        "kind": "transfer",
        "columns": ["data", "made against", "model", "SA", "FMR"],
        "rows": [["toys", "one", "one", 90.0, 40.0], ["toys", "one", "two", 91.0, 50.0]],
        "run": {
            "toys": {
                "data": tiny.data.name,
                "models": {"one": None, "two": None, "three": None},
                "generator": {"name": "pixels:l2", "epsilon": 0.2},
                "oracle": "daylight:",
                "search": {"budget": 2, "step": 0.05},
            },
            "real": {"data": None, "models": {"one": MODEL}},
        },
    }
    file.write_text(yaml.safe_dump(values))
    out = ("--out", tmp_path / "out", "--images", 8)
    assert call("study", file)[1].splitlines()[0] == "Mine"
    code, output = call("study", file, "--run", "--set", f"toys.models.one={MODEL}", "--set", f"toys.models.two={OTHER}", *out)
    assert code == 0
    lines = [line for line in output.splitlines() if line.startswith("toys  ")]
    assert [line.count(" to ") for line in lines] == [2, 2]
    assert "toys: not run for lack of toys.models.three" in output
    assert "real: not run for lack of real.data, real.generator, real.oracle" in output
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1
    assert "write DATA.KEY=VALUE" in call("study", file, "--run", "--set", "seed=1", *out)[1]
    assert "no set-up to run" in call("study", "fmr/4", "--run")[1]


def test_without_a_name_studies_and_tables_are_listed() -> None:
    code, output = call("study")
    assert code == 0
    assert {"variants", "surrogates", "fmr/1", "fmr/15"} <= {line.split()[0] for line in output.splitlines()}


@pytest.mark.parametrize(
    "content", ["[", "title: x", "{title: x, kind: nothing, columns: [a], rows: [[1]]}", "a: " + "[" * 5000], ids=range(4)
)
def test_a_file_that_is_no_table_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.yaml").write_text(content)
    with pytest.raises(CounterfoilError) as caught:
        published.load(str(tmp_path / "t.yaml"))
    assert "\n" not in str(caught.value)


def test_runs_of_other_protocols_stand_beside_their_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = published.load("imagenet-d/0")
    assert published.names()[-1] == "imagenet-d/0" and "Table" not in next(published.print_table(table))
    numbers = {"drop": {"value": 50.0, "low": 40.0, "high": 60.0, "n": 30}, "counts": {"images": 30}}
    with store.write(tmp_path, {"protocol": "imagenet-d", "models": [{"name": "timm:vit_l_16"}]}, ["a"], {}) as writer:
        writer.finish(numbers)
    monkeypatch.setattr(type(protocols.get("imagenet-d")), "results", lambda self, run, **who: numbers)
    text = "\n".join(published.print_table(table, list(published.rows_of(store.open_run(tmp_path), table))))
    assert "59.40" in text and "50.0 (40.0 to 60.0)" in text and "30 images" in text


def test_every_model_is_a_part_that_exists_and_every_row_names_one() -> None:
    for name in published.names():
        table = published.load(name)
        for label, setup in table.run.items():
            shown = [row for row in map(table.row, range(len(table.rows))) if row.get("data", label) == label]
            named = {str(row[column]) for row in shown for column in ("model", "made against") if column in row}
            assert name in ("fmr/7", "fmr/9") or named <= set(setup.models), (name, named)
            for part in setup.models.values():
                assert part is None or part.name.partition(":")[0] in ("timm", "torchvision")
                assert part is None or "weights" in part.options or timm.is_model_pretrained(part.name.partition(":")[2])
        assert all(source.published for source in table.sources.values())


def test_a_dry_run_names_what_is_missing_and_where_it_is_published(tmp_path: Path) -> None:
    code, output = call("study", "fmr/2", "--dry-run")
    row = next(line for line in output.splitlines() if " DAT " in line)
    assert code == 0 and "data: no imagenet/val" in row and "DAT: no weights/resnet50_dat.pth" in row
    assert "discrete_adversarial_training_models/resnet50_dat.pth" in output
    wanted = {
        "data": f"folder:{tmp_path}",
        "generator": "pixels:",
        "oracle": "daylight:",
        "models.DAT.weights": __file__,
        "corrupted": f"imagenet-c:{tmp_path}",
    }
    given = [word for key, value in wanted.items() for word in ("--set", f"ImageNet.{key}={value}")]
    output = call("study", "fmr/2", "--dry-run", *given)[1]
    assert next(line for line in output.splitlines() if " DAT " in line).endswith("ready")


FORMATS = ("plain", "checkpoint", "parallel")
"""State dictionaries as they are published: alone, in a training checkpoint, of a model in DataParallel."""


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> list[PartSpec]:
    """Tiny networks with weights in each format, twelve in all."""
    folder, found = tmp_path_factory.mktemp("weights"), []
    for place in range(12):
        torch.manual_seed(place)
        state = timm.create_model("test_resnet", num_classes=len(CLASSES)).state_dict()
        form, file = FORMATS[place % 3], folder / f"{place}.pth.tar"
        named = {f"module.{key}": value for key, value in state.items()} if form == "parallel" else state
        torch.save(state if form == "plain" else {"arch": "resnet", "epoch": 1, "state_dict": named}, file)
        found.append(PartSpec(name="timm:test_resnet", options={"weights": str(file), "classes": list(CLASSES)}))
    return found


@pytest.mark.parametrize("number", [1, 2, 3, *range(5, 16)])
def test_every_table_runs_from_end_to_end_on_stand_ins(number: int, stand_ins: list[PartSpec], tmp_path: Path) -> None:
    table = published.load(f"fmr/{number}")
    data = PartSpec(name=f"tensors:{arrays(tmp_path / 'data.npz', 12, 32)}")
    pixels = PartSpec(name="pixels:l2", options={"epsilon": 0.2})
    shared = {"data": data, "oracle": PartSpec(name="daylight:"), "generator": pixels}
    if number == 15:
        shared["oracle"] = PartSpec(name="classifier:timm:test_resnet", options={"options": stand_ins[0].options})
    other = {"name": "classifier:timm:test_resnet", "options": {"options": stand_ins[1].options}}
    options = {
        "augmentation": {"training_data": data.name, "training_images": 4, "epochs": 1},
        "sparse": {"question": "perturbed", "fitting_images": 12, "sparsity": 95.0},
        "oracle-attack": {"steps": (1,), "oracles": [other]},
    }
    label, setup = next(iter(table.run.items()))
    several = table.kind in ("generators", "transfer")
    own = {
        "models": dict(zip(list(setup.models)[: 3 if several else 2], stand_ins, strict=False)),
        "generators": dict.fromkeys(list(setup.generators)[:2], pixels),
        "options": options.get(setup.study or "", {}),
        "search": {"step": 0.1, "budget": 1},
        **({"corrupted": data} if setup.corrupted else {}),
    }
    run = {label: setup.model_copy(update={**shared, **own})}
    table = table.model_copy(update={"run": run})
    base = StudySettings(tmp_path, data, pixels, data, images=12, size=32)
    rows, lines = published.run_table(table, base, Runs(base))
    if any(setup.study for setup in run.values()):
        assert not rows and any("published counterpart" in line for line in lines)
    else:
        text = "\n".join(published.print_table(table, rows))
        assert not lines and f"our {table.numbers[-1]}" in text
        assert (number == 2) is all("SA*" in row.values for row in rows)
        models = {row.named.get("model", row.labels["model"]) for row in rows}
        assert models == set(next(iter(run.values())).models)


def test_every_table_is_an_item_with_a_command_and_a_state() -> None:
    items = published.items("fmr")
    assert [what.partition(":")[0] for what, _, _ in items[:15]] == [f"Table {number}" for number in range(1, 16)]
    states = {what.partition(":")[0]: state for what, _, state in items}
    assert "without published weights: LeNet, ResNet18" in states["Table 1"] and "nothing to run" in states["Table 4"]
    assert "run on the lab by 'counterfoil study transfer'" in states["Table 6"]
    assert all(state for _, _, state in items) and len(items) > 20
