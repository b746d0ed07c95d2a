"""From a checkpoint and a folder of photos to a number, with everything else chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import counterfoil
from counterfoil.cli.app import app
from counterfoil.core.errors import BadData, CounterfoilError
from counterfoil.doctor.check import Stopped, check
from counterfoil.parts.models.recognise import recognise

CLASSES = ("blue", "green", "red")
PARTS = '''
import torch
from torch import nn

class Colours:
    size = None
    def __init__(self, blind=False):
        self.blind = blind
    def embed_images(self, images):
        images = images * 0 if self.blind else images
        return torch.cat([images.mean((2, 3)), torch.ones(len(images), 3)], 1)
    def embed_texts(self, texts):
        raise NotImplementedError

class Model(nn.Module):
    """Right if the brightest channel is the class; `order` says which output that is."""
    classes, differentiable, size = ("blue", "green", "red"), True, 32
    def __init__(self, order=(2, 1, 0), same=False):
        super().__init__()
        self.order, self.same = order, same
    def logits(self, images):
        means = 20 * images.mean((2, 3))[:, list(self.order)]
        return means * 0 + torch.tensor([4.0, 0, 0]) if self.same else means

def colours(): return Colours()
def blind(): return Colours(blind=True)
def model(): return Model()
def constant(): return Model(same=True)
'''
PRESET = """
generators:
  - {{name: "pixels:", about: steps on pixels}}
  - {{name: "transforms:", about: corruptions}}
oracles:
  - {{name: "probe:python:{parts}:colours", about: learns from the photos}}
"""


@pytest.fixture
def home(tmp_path):
    """Photos of three classes, a model and a preset."""
    draw = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for number in range(8):
            pixels = draw.integers(60, 120, (32, 32, 3))
            pixels[..., 2 - label] += 80
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "preset.yaml").write_text(PRESET.format(parts=tmp_path / "parts.py"))
    return tmp_path


def settings(home, model="model", **more):
    lines = []
    given = {"preset": home / "preset.yaml", "out": home / "run", "device": "cpu", "tell": lines.append, **more}
    return f"python:{home / 'parts.py'}:{model}", home / "photos", given, lines


def test_a_model_and_photos_are_enough(home):
    model, photos, given, lines = settings(home)
    done = counterfoil.check(model, photos, **given)
    assert [what for what, _, _ in done.choices] == ["model", "oracle", "generator", "time"]
    assert {what: chosen for what, chosen, _ in done.choices}["oracle"].startswith("probe:")
    assert len(done.verdict) == 3 and "of its accuracy" in done.verdict[0] and "100 % of 24 photos" in done.verdict[0]
    assert done.page.is_file()
    assert any(line.startswith("accuracy   100.0%") for line in lines)


def test_nothing_runs_where_the_answer_is_no(home):
    model, photos, given, _ = settings(home, ask=lambda question: "Start?" not in question)
    done = check(model, photos, **given)
    assert done.run is None and not (home / "run").exists()


def test_accuracy_that_is_not_the_expected_one_stops_it(home):
    model, photos, given, _ = settings(home, expect=60.0)
    with pytest.raises(Stopped, match=r"accuracy is 100.0% of 24 photos where 60 % was expected"):
        check(model, photos, **given)


def test_a_model_at_chance_stops_it(home):
    model, photos, given, _ = settings(home, "constant")
    with pytest.raises(Stopped, match="the model is at chance on these photos: 8 of 24"):
        check(model, photos, **given)
    assert not (home / "run").exists()


def test_an_oracle_that_does_not_know_the_classes_is_not_used(home):
    preset = home / "preset.yaml"
    preset.write_text(preset.read_text().replace(":colours", ":blind"))
    model, photos, given, lines = settings(home)
    with pytest.raises(Stopped, match="no oracle can be used here"):
        check(model, photos, **given)
    assert any("no better than always answering" in line for line in lines)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda home: [file.unlink() for file in sorted((home / "photos" / "red").iterdir())[:5]],
            r"fewer than 5 photos of red \(3\)",
        ),
        (lambda home: [(home / "photos" / name).rename(home / name) for name in ("red", "green")], "only one class"),
        (lambda home: _copies(home), "different readable photos"),
    ],
)
def test_photos_that_cannot_be_tested_on_are_named(home, spoil, said):
    spoil(home)
    model, photos, given, _ = settings(home)
    with pytest.raises(BadData, match=said):
        check(model, photos, **given)


def _copies(home):
    for folder in (home / "photos").iterdir():
        first, *rest = sorted(folder.iterdir())
        for file in rest:
            file.write_bytes(first.read_bytes())


def test_the_command_ends_with_the_verdict_and_the_page(home):
    model, photos, _, _ = settings(home)
    options = ["--preset", str(home / "preset.yaml"), "--out", str(home / "run"), "--device", "cpu", "--yes"]
    ended = CliRunner().invoke(app, ["check", model, str(photos), *options])
    assert ended.exit_code == 0, ended.output
    assert "of its accuracy" in ended.output and "index.html" in ended.output


class TestRecognise:
    def test_a_state_dictionary_by_its_names_and_shapes(self, tmp_path):
        import timm

        torch.save(timm.create_model("mobilenetv3_large_100", num_classes=3).state_dict(), tmp_path / "best.pth")
        found = recognise(str(tmp_path / "best.pth"), classes=CLASSES)
        assert (found.name, found.options["classes"]) == ("timm:mobilenetv3_large_100", list(CLASSES))

    def test_an_architecture_that_is_given(self, tmp_path):
        torch.save({"state_dict": {"layer.weight": torch.ones(3, 4), "layer.bias": torch.ones(3)}}, tmp_path / "best.pth")
        assert recognise(str(tmp_path / "best.pth"), arch="torchvision:resnet18", classes=CLASSES).name == "torchvision:resnet18"

    def test_a_torchscript_program(self, tmp_path):
        torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(12, 3))).save(str(tmp_path / "best.pt"))
        assert recognise(str(tmp_path / "best.pt")).name.startswith("torchscript:")

    def test_a_name_is_left_as_it_is(self):
        assert recognise("timm:resnet18.a1_in1k").name == "timm:resnet18.a1_in1k"

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (lambda folder: folder / "none.pth", "no such file or folder"),
            (lambda folder: folder, "a folder without config.json"),
            (lambda folder: _state(folder, 4), "its head has 4 outputs for 3 classes"),
            (lambda folder: _state(folder, 3), "say which it is, as in --arch timm:resnet18"),
        ],
    )
    def test_what_cannot_be_recognised_is_said(self, tmp_path, make, said):
        with pytest.raises(CounterfoilError, match=said):
            recognise(str(make(tmp_path)), classes=CLASSES)


def _state(folder, outputs):
    torch.save({"head.weight": torch.ones(outputs, 4), "head.bias": torch.ones(outputs)}, folder / "model.pth")
    return folder / "model.pth"
