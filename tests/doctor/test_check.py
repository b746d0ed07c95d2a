"""From a checkpoint and a folder of photos to a number, with everything else chosen."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import counterfoil
from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.core.errors import BadData, CounterfoilError
from counterfoil.doctor.check import Stopped, check, read_preset
from counterfoil.parts import registry
from counterfoil.parts.images import to_uint8
from counterfoil.parts.models.recognise import recognise
from tests.doctor import broken

CLASSES = ("blue", "green", "red")
PARTS = '''
import os
import pathlib
import signal
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

class Mortal(Model):
    """Ends the process in the middle of the run."""
    home, left = pathlib.Path(__file__).parent, 3
    def logits(self, images):
        self.left -= (self.home / "run" / "run.json").exists()
        if self.left == 0 and not (self.home / "spared").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().logits(images)

def mortal(): return Mortal()
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
    assert any(line.startswith("accuracy   100.0 %") for line in lines)


def test_nothing_runs_where_the_answer_is_no(home):
    model, photos, given, _ = settings(home, ask=lambda question: "Start?" not in question)
    done = check(model, photos, **given)
    assert done.run is None and not (home / "run").exists()


def test_accuracy_that_is_not_the_expected_one_stops_it(home):
    model, photos, given, _ = settings(home, expect=60.0)
    with pytest.raises(Stopped, match=r"accuracy is 100.0 % .* where 60 % was expected"):
        check(model, photos, **given)


def test_a_model_at_chance_stops_it(home):
    model, photos, given, _ = settings(home, "constant")
    with pytest.raises(Stopped, match=r"the model is at chance on these photos, 33\.3 %"):
        check(model, photos, **given)
    assert not (home / "run").exists()


def test_an_oracle_that_does_not_know_the_classes_is_not_used(home):
    preset = home / "preset.yaml"
    preset.write_text(preset.read_text().replace(":colours", ":blind"))
    model, photos, given, lines = settings(home)
    with pytest.raises(Stopped, match="no oracle knows these classes: none can be used here"):
        check(model, photos, **given)
    assert any("no better than always answering" in line for line in lines)


def test_killed_half_way_the_same_call_resumes_it(home):
    words = f"""
import counterfoil
from pathlib import Path
home = Path({str(home)!r})
counterfoil.check(f"python:{{home / 'parts.py'}}:mortal", home / "photos", preset=home / "preset.yaml", out=home / "run",
                  device="cpu", minutes=1e-6)
"""
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended.stderr
    (home / "spared").touch()
    model, photos, given, _ = settings(home, "mortal", minutes=60)
    done = check(model, photos, **given)
    assert ("resumed", str(home / "run")) in [each[:2] for each in done.choices]
    assert done.run.spec["limit"] == done.run.counts["images"] == 5  # as it was begun, though there is more time now
    assert done.run.results is not None


def _spoil_red(home):
    for file in sorted((home / "photos" / "red").iterdir())[:5]:
        file.unlink()


def _leave_one(home):
    for name in ("red", "green"):
        (home / "photos" / name).rename(home / name)


def _copy(home):
    for folder in (home / "photos").iterdir():
        first, *rest = sorted(folder.iterdir())
        for file in rest:
            file.write_bytes(first.read_bytes())


def _convert(mode):
    def convert(home):
        for file in (home / "photos").rglob("*.png"):
            Image.open(file).convert(mode).save(file.with_suffix(".jpg"), quality=95)
            file.unlink()

    return convert


def _write_text(home):
    for file in (home / "photos" / "red").iterdir():
        file.write_text("no image")


BAD = {
    "fewer than five": (_spoil_red, r"fewer than 5 photos of red \(3\)"),
    "one class": (_leave_one, "only one class"),
    "copies of one": (_copy, r"fewer than 5 different readable photos of blue \(1\), green \(1\), red \(1\)"),
    "no images": (_write_text, r"fewer than 5 different readable photos of red \(0\)"),
    "grey": (_convert("L"), "the model is at chance"),
}


@pytest.mark.parametrize("name", BAD)
def test_photos_that_cannot_be_tested_on_are_named_in_one_line(home, name):
    spoil, line = BAD[name]
    spoil(home)
    model, photos, given, lines = settings(home)
    with pytest.raises((BadData, Stopped), match=line) as stopped:
        check(model, photos, **given)
    assert "\n" not in str(stopped.value) and not (home / "run").exists()
    assert (
        name != "grey"
        or "note       24 of 24 photos are grey; a model trained in colour may do worse on them for that alone" in lines
    )


def test_cmyk_photos_are_read_as_their_colours(home):
    _convert("CMYK")(home)
    model, photos, given, lines = settings(home, ask=lambda question: False)
    assert check(model, photos, **given).run is None
    assert any(line.startswith("accuracy   100.0 %") for line in lines)


@pytest.fixture(scope="module")
def garments(tmp_path_factory):
    """Photos of the lab in which colour tells the class."""
    home = tmp_path_factory.mktemp("garments")
    data = registry.create("dataset", "lab:wardrobe", {"count": 96, "distribution": "colour-shortcut"})
    for sample in data:
        folder = home / data.classes[sample.label]
        folder.mkdir(exist_ok=True)
        Image.fromarray(to_uint8(data.load(sample, 64))).save(folder / f"{sample.image_id.replace('/', '-')}.png")
    return home


def _twice(healthy):
    return broken.remade(healthy, broken.Wrapped(healthy.module, before=lambda images: (images - 0.485) / 0.229))


MISTAKES = {
    "double normalisation": (_twice, "normalisation: the network expects"),
    "channel order": (broken.MODELS["BGR"][0], r"channel order: red and blue are swapped"),
    "class order": (broken.MODELS["shuffled classes"][0], "class order: outputs are in another order than the names"),
    "off by one": (broken.MODELS["off by one"][0], "class order: class names are off by one"),
    "wrong crop": (lambda healthy: broken.remade(healthy, resize=(160, 160)), "size or crop: images are cropped too much"),
    "wrong size": (broken.halve_size, "size or crop: the network expects images of 64 pixels"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_usual_mistake_is_told_apart_from_others_before_anything_is_run(garments, name):
    spoil, line = MISTAKES[name]
    lines = []
    with pytest.raises(Stopped, match=line):
        check(spoil(registry.create("model", "lab:colour-shortcut")), garments, device="cpu", tell=lines.append)
    assert [line.split()[0] for line in lines] == ["model", "accuracy"]


class _Umbrella(nn.Module):
    """A network with one more output, which wins on every second image."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        logits = self.inner(images)
        wins = (images.mean((1, 2, 3)) * 1000).round().remainder(2) == 0
        return torch.cat([logits, torch.where(wins, logits.amax(1) + 2, logits.amin(1))[:, None]], 1)


def test_an_accuracy_among_fewer_classes_is_named_as_that(garments):
    healthy = registry.create("model", "lab:colour-shortcut")
    model = broken.remade(healthy, _Umbrella(healthy.module), [*healthy.classes, "umbrella"])
    with pytest.raises(Stopped, match=r"class subset: 99 % fits its accuracy among the 8 classes"):
        check(model, garments, device="cpu", expect=99, tell=lambda line: None)


def test_offline_it_does_with_what_is_there_and_says_what_is_lost(home, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    preset = home / "preset.yaml"
    far = '{name: "autoencoder:some/where", megabytes: 4000, licence: MIT}'
    preset.write_text(preset.read_text().replace('- {name: "pixels:", about: steps on pixels}', f"- {far}"))
    asked = []
    model, photos, given, lines = settings(home, ask=lambda question: asked.append(question))
    done = check(model, photos, **given)
    assert (
        "note       not fetched, because the hub is switched off (HF_HUB_OFFLINE): autoencoder:some/where (4,000 MB, MIT)"
        in lines
    )
    assert ("generator", "transforms:") in [each[:2] for each in done.choices] and len(asked) == 1


def test_further_runs_are_ready_in_files_and_say_what_they_fetch(home):
    parts = "".join(f", {key}: {{name: '{key}:far', megabytes: 2000, licence: MIT}}" for key in ("captioner", "editor"))
    with (home / "preset.yaml").open("a") as file:
        file.write(f"next: {{lance: {{about: factors{parts}, rewriter: {{name: 'lexicon:'}}, encoder: {{name: 'clip:near'}}}}}}")
    model, photos, given, _ = settings(home)
    (line,) = check(model, photos, **given).next
    fetches = "it fetches about 4,000 MB: captioner:far (2,000 MB, MIT), editor:far (2,000 MB, MIT)"
    assert line == f"counterfoil run {home / 'run' / 'lance.yaml'}: factors; {fetches}"
    assert protocols.parse(yaml.safe_load((home / "run" / "lance.yaml").read_text())).data.name == f"folder:{photos}"


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


def test_the_preset_that_comes_with_the_package_is_read_whole():
    known = read_preset()
    assert known.generators[-1].name == "transforms:" and len(known.oracles) >= 2
    assert {"lance", "imagenet-d"} == known.next.keys()
    assert known.generators[1].about == "its distilled twin; quick, a little blurred"
