"""The recipes behind Table 1's first two rows: models that load, and training that goes the whole way on a few digits."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench.table1 import models, train
from safetensors.torch import save_file
from tests.cli.stored import call

from counterfoil.core.errors import BadWeights
from counterfoil.store import open_run


def digits(folder: Path) -> Path:
    """Bright squares whose place says the class, as idx files."""
    for prefix, count in (("train", 60), ("t10k", 20)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.zeros((count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 + 2 * label : 9 + 2 * label, 8:20] = 255
        raw = folder / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())
    return folder


def test_the_published_resnet_loads_under_its_own_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    import timm

    original = timm.create_model("resnet18", num_classes=10)
    original.conv1, original.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()
    state = {
        name.replace(".downsample.", ".shortcut.").replace("fc.", "linear."): value
        for name, value in original.state_dict().items()
    }
    save_file({name: value.contiguous() for name, value in state.items()}, tmp_path / "model.safetensors")
    module, classes = models.resnet18(str(tmp_path / "model.safetensors"))
    pictures = torch.rand(2, 3, 32, 32)
    assert torch.equal(module.eval()(pictures), original.eval()(pictures))
    assert len(classes) == 10
    save_file({"other.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(BadWeights):
        models.resnet18(str(tmp_path / "other.safetensors"))


def test_a_row_is_trained_run_and_printed_beside_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = digits(tmp_path)
    monkeypatch.setattr(models, "WEIGHTS", tmp_path / "weights")
    monkeypatch.setattr(models.lenet, "__defaults__", (str(tmp_path / "weights" / "lenet.safetensors"),))
    monkeypatch.setattr(models.mnist_judge, "__defaults__", (str(tmp_path / "weights" / "mnist-judge.safetensors"),))
    for name, count, batch in (("lenet", 60, 32), ("mnist-judge", 40, 20), ("mnist-vq", 60, 6)):
        recipe = replace(train.RECIPES[name], batch=batch)
        place = train.Place(data, scale=count / recipe.steps, out=tmp_path / "weights")
        train.train(name, recipe, place)
    train.train(
        "lenet", recipe := replace(train.RECIPES["lenet"], batch=32), replace(place, scale=20 / recipe.steps, resume=True)
    )
    said = capsys.readouterr().out
    assert "lenet: 100.00 % of 20 test images right" in said
    assert "mnist-vq: PSNR" in said
    here = "python:bench.table1.models"
    given = {
        "data.root": data,
        "models.LeNet": f"{here}:lenet",
        "generator": f"autoencoder:{tmp_path / 'weights' / 'mnist-vq'}",
        "oracle": f"classifier:{here}:mnist_judge",
        "search.budget": 2,
    }
    settings = [part for key, value in given.items() for part in ("--set", f"MNIST.{key}={value}")]
    code, table = call("study", "fmr/1", "--run", "--images", 10, "--out", tmp_path / "out", *settings)
    assert code == 0, table
    line = next(each for each in table.splitlines() if each.startswith("MNIST"))
    assert line.split()[1:5] == ["LeNet", "99.09", "27.78", "28.04"]
    (made,) = (tmp_path / "out" / "runs").iterdir()
    assert f"{(open_run(made).results or {})['SA']['value']:.1f} (" in line
    assert "oracle classifier:python:bench.table1.models:mnist_judge (published: " in table
    assert "CIFAR-10: not run for lack of CIFAR-10.data, CIFAR-10.generator, CIFAR-10.models.ResNet18" in table
