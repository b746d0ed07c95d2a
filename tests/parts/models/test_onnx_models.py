from __future__ import annotations

import builtins
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.core.errors import BadPart
from counterfoil.testing import check_model, pictures
from tests.fakes import CLASSES
from tests.parts.created import onnx_model
from tests.parts.models.programs import Network, onnx_file

PLAIN: dict[str, Any] = {"classes": list(CLASSES), "mean": 0, "std": 1}
IMAGENET = (torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None])


def reference_logits(inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return Network().eval()(inputs)


@pytest.mark.parametrize("rows", [None, 1, 3])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_scores_are_those_of_the_network(tmp_path: Path, rows: int | None, layout: str) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx", rows=rows, layout=layout)), **PLAIN)
    images = pictures(5, 16)
    assert torch.allclose(model.logits(images), reference_logits(images), atol=1e-5)
    assert model.size == 16
    assert not model.differentiable


def test_the_models_contract_is_kept(tmp_path: Path) -> None:
    check_model(onnx_model(str(onnx_file(tmp_path / "any.onnx")), **PLAIN), size=24)
    check_model(onnx_model(str(onnx_file(tmp_path / "three.onnx", rows=3)), **PLAIN), size=16)


def test_inputs_are_normalised_as_told(tmp_path: Path) -> None:
    file, images = str(onnx_file(tmp_path / "m.onnx")), pictures(4, 16)
    names = {"classes": list(CLASSES)}
    assert torch.allclose(
        onnx_model(file, **names).logits(images), reference_logits((images - IMAGENET[0]) / IMAGENET[1]), atol=1e-4
    )
    scaled = onnx_model(file, **names, scale=255, mean=127, std=128)
    assert torch.allclose(scaled.logits(images), reference_logits((images * 255 - 127) / 128), atol=1e-4)
    blue_first = onnx_model(file, **names, channels="bgr", mean=[0.1, 0.2, 0.3], std=[1, 2, 4])
    means, stds = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([1.0, 2.0, 4.0])[:, None, None]
    assert torch.allclose(blue_first.logits(images), reference_logits((images.flip(1) - means) / stds), atol=1e-4)


def test_whole_numbers_are_fed_as_levels(tmp_path: Path) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx", bytes_in=True)), classes=list(CLASSES))
    images = pictures(4, 16)
    assert torch.allclose(model.logits(images), reference_logits((images * 255).round()), atol=1e-2)


def test_probabilities_are_told_from_logits(tmp_path: Path) -> None:
    file, images = str(onnx_file(tmp_path / "m.onnx", softmax=True)), pictures(4, 16)
    model = onnx_model(file, **PLAIN)
    assert torch.allclose(model.logits(images).softmax(dim=1), reference_logits(images).softmax(dim=1), atol=1e-5)
    assert model.provenance()["scores"] == "probabilities"
    as_logits = onnx_model(file, **PLAIN, scores="logits")
    assert torch.allclose(as_logits.logits(images), reference_logits(images).softmax(dim=1), atol=1e-5)


def test_a_background_class_is_left_out(tmp_path: Path) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx")), classes=["bee", "cat", "dog"], mean=0, std=1, skip=1)
    images = pictures(4, 16)
    assert torch.allclose(model.logits(images), reference_logits(images)[:, 1:], atol=1e-5)


def test_pictures_are_resized_to_what_it_takes(tmp_path: Path) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx", size=None)), **PLAIN, size=16)
    large = pictures(4, 40)
    small = torch.nn.functional.interpolate(large, (16, 16), mode="bilinear", antialias=True)
    assert torch.allclose(model.logits(large), reference_logits(small), atol=1e-4)


def test_provenance_has_the_files_hash(tmp_path: Path) -> None:
    file = onnx_file(tmp_path / "m.onnx")
    assert onnx_model(str(file), **PLAIN).provenance()["weights"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_without_onnxruntime_the_line_that_installs_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = onnx_file(tmp_path / "m.onnx")
    load = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "onnxruntime":
            raise ModuleNotFoundError(name=name)
        return load(name, *rest, **options)

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadPart, match=r"needs onnxruntime, which is not installed; run: pip install 'counterfoil\[onnx\]'"):
        onnx_model(str(file), **PLAIN)
