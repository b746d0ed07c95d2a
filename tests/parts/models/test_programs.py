"""Exported programs, TorchScript and ONNX: the scores of the network they were made from, and hostile files."""

from __future__ import annotations

import builtins
import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import registry
from counterfoil.testing import check_model, pictures
from tests.fakes import CLASSES
from tests.parts.created import onnx_model, pt2_model, torchscript_model
from tests.parts.models.programs import Network, export_program, onnx_file, script_program

PLAIN: dict[str, Any] = {"classes": list(CLASSES), "size": 16, "mean": 0, "std": 1}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_program(tmp_path_factory.mktemp("export") / "model.pt2")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return script_program(tmp_path_factory.mktemp("script") / "model.pt")


def by_network(images: Tensor) -> Tensor:
    with torch.no_grad():
        return Network().eval()(images)


def test_programs_say_what_the_network_says(export: Path, script: Path, tmp_path: Path) -> None:
    images = pictures(5, 16)
    fixed = export_program(tmp_path / "fixed.pt2", rows=3)
    for model in (pt2_model(str(export), **PLAIN), pt2_model(str(fixed), **PLAIN), torchscript_model(str(script), **PLAIN)):
        assert torch.allclose(model.logits(images), by_network(images), atol=1e-5)
        assert model.differentiable
        check_model(model, size=16)


def test_gradients_are_those_of_the_network(export: Path, script: Path) -> None:
    gradients = []
    for score in (pt2_model(str(export), **PLAIN).logits, torchscript_model(str(script), **PLAIN).logits, Network().eval()):
        images = pictures(2, 16).requires_grad_()
        gradients.append(torch.autograd.grad(score(images)[:, 1].sum(), images)[0])
    assert torch.allclose(gradients[0], gradients[2], atol=1e-5)
    assert torch.allclose(gradients[1], gradients[2], atol=1e-5)


def test_a_program_without_gradients_is_a_black_box(tmp_path: Path) -> None:
    class Detached(Network):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.body(inputs.detach())

    model = torchscript_model(str(script_program(tmp_path / "m.pt", module=Detached())), **PLAIN)
    assert not model.differentiable
    check_model(model, size=16)


def test_probabilities_and_a_background_class_are_seen_to(tmp_path: Path) -> None:
    file = export_program(tmp_path / "m.pt2", softmax=True, background=True)
    images = pictures(4, 16)
    model = pt2_model(str(file), **PLAIN, skip=1)
    assert torch.allclose(model.logits(images).softmax(dim=1), by_network(images).softmax(dim=1), atol=1e-5)


def test_two_frozen_programs_are_not_taken_for_one(tmp_path: Path) -> None:
    class Other(Network):
        def __init__(self) -> None:
            super().__init__()
            nn.init.ones_(self.body[-1].bias)

    first, second = script_program(tmp_path / "a.pt", freeze=True), script_program(tmp_path / "b.pt", freeze=True, module=Other())
    models = [torchscript_model(str(file), **PLAIN) for file in (first, second)]
    assert models[0].provenance()["weights"] != models[1].provenance()["weights"]


class Trap:
    """A pickle that runs something."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.mark), "w")


def copy_with(source: Path, target: Path, edit: Callable[[str, bytes], bytes | None], **more: bytes) -> Path:
    """An archive with some entries rewritten and others added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        top = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            content = edit(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
        for name, content in more.items():
            new.writestr(f"{top}/{name}", content)
    return target


def with_graph(source: Path, target: Path, edit: Callable[[Any], None]) -> Path:
    def rewrite(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        graph = json.loads(content)
        edit(graph)
        return json.dumps(graph).encode()

    return copy_with(source, target, rewrite)


def test_a_call_of_anything_but_an_operator_is_refused(export: Path, tmp_path: Path) -> None:
    for target in (
        "torch.hub.load",
        "torch._C._jit_set",
        "torch.ops.aten.from_file.default",
        "_operator.attrgetter",
        "os.system",
    ):

        def edit(graph: Any, target: str = target) -> None:
            graph["graph_module"]["graph"]["nodes"][0]["target"] = target

        with pytest.raises(BadWeights, match=f"refused, it holds a call of {target}"):
            pt2_model(str(with_graph(export, tmp_path / "bad.pt2", edit)), **PLAIN)


def test_an_expression_that_is_more_than_arithmetic_is_refused(export: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for text in (f"open('{mark}', 'w')", "().__class__", "[x for x in (1,)]", "eval('1')", "lambda: 1"):

        def edit(value: Any, text: str = text) -> None:
            for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                edit(entry, text)
            if isinstance(value, dict) and "expr_str" in value:
                value["expr_str"] = text

        with pytest.raises(BadWeights, match="refused, it holds the expression"):
            pt2_model(str(with_graph(export, tmp_path / "bad.pt2", edit)), **PLAIN)
    assert not mark.exists()


def test_guards_are_not_run_as_python(export: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    def edit(graph: Any) -> None:
        graph["guards_code"] = [f"open('{mark}', 'w')"]

    pt2_model(str(with_graph(export, tmp_path / "guarded.pt2", edit)), **PLAIN).logits(pictures(2, 16))
    assert not mark.exists()


def test_pickles_inside_an_export_are_refused_and_not_run(export: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    buffer = io.BytesIO()
    torch.save(Trap(mark), buffer)

    def edit(name: str, content: bytes) -> bytes:
        return buffer.getvalue() if "sample_inputs" in name else content

    with pytest.raises(BadWeights, match=r"bad\.pt2: (refused|cannot be loaded)"):
        pt2_model(str(copy_with(export, tmp_path / "bad.pt2", edit)), **PLAIN)
    trap = {"data/constants/opaque_obj_0": pickle.dumps(Trap(mark))}
    with pytest.raises(BadWeights, match="refused, it holds a pickled object"):
        pt2_model(str(copy_with(export, tmp_path / "bad.pt2", lambda name, content: content, **trap)), **PLAIN)
    assert not mark.exists()


def test_machine_code_is_refused(export: Path, tmp_path: Path) -> None:
    code = {"data/aotinductor/model/run.so": b"\x7fELF"}
    with pytest.raises(BadWeights, match="refused, it holds machine code"):
        pt2_model(str(copy_with(export, tmp_path / "bad.pt2", lambda name, content: content, **code)), **PLAIN)


def test_a_script_that_writes_files_is_refused(script: Path, tmp_path: Path) -> None:
    def edit(name: str, content: bytes) -> bytes:
        return content + b"\n    torch.save(x, 'here')\n" if name.endswith(".py") else content

    with pytest.raises(BadWeights, match=r"refused, it holds the operator torch\.save, which touches files"):
        torchscript_model(str(copy_with(script, tmp_path / "bad.pt", edit)), **PLAIN)


ONNX: dict[str, Any] = {"classes": list(CLASSES), "mean": 0, "std": 1}
IMAGENET = (torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None])


@pytest.mark.parametrize("rows", [None, 1, 3])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_scores_are_those_of_the_network(tmp_path: Path, rows: int | None, layout: str) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx", rows=rows, layout=layout)), **ONNX)
    images = pictures(5, 16)
    assert torch.allclose(model.logits(images), by_network(images), atol=1e-5)
    assert model.size == 16
    assert not model.differentiable


def test_inputs_are_normalised_as_told(tmp_path: Path) -> None:
    file, images = str(onnx_file(tmp_path / "m.onnx")), pictures(4, 16)
    names = {"classes": list(CLASSES)}
    assert torch.allclose(onnx_model(file, **names).logits(images), by_network((images - IMAGENET[0]) / IMAGENET[1]), atol=1e-4)
    scaled = onnx_model(file, **names, scale=255, mean=127, std=128)
    assert torch.allclose(scaled.logits(images), by_network((images * 255 - 127) / 128), atol=1e-4)
    blue_first = onnx_model(file, **names, channels="bgr", mean=[0.1, 0.2, 0.3], std=[1, 2, 4])
    means, stds = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([1.0, 2.0, 4.0])[:, None, None]
    assert torch.allclose(blue_first.logits(images), by_network((images.flip(1) - means) / stds), atol=1e-4)


def test_whole_numbers_are_fed_as_levels(tmp_path: Path) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx", bytes_in=True)), classes=list(CLASSES))
    images = pictures(4, 16)
    assert torch.allclose(model.logits(images), by_network((images * 255).round()), atol=1e-2)


def test_probabilities_are_told_from_logits(tmp_path: Path) -> None:
    file, images = str(onnx_file(tmp_path / "m.onnx", softmax=True)), pictures(4, 16)
    model = onnx_model(file, **ONNX)
    assert torch.allclose(model.logits(images).softmax(dim=1), by_network(images).softmax(dim=1), atol=1e-5)
    assert model.provenance()["scores"] == "probabilities"
    as_logits = onnx_model(file, **ONNX, scores="logits")
    assert torch.allclose(as_logits.logits(images), by_network(images).softmax(dim=1), atol=1e-5)


def test_a_background_class_is_left_out(tmp_path: Path) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx")), classes=["bee", "cat", "dog"], mean=0, std=1, skip=1)
    images = pictures(4, 16)
    assert torch.allclose(model.logits(images), by_network(images)[:, 1:], atol=1e-5)


def test_pictures_are_resized_to_what_it_takes(tmp_path: Path) -> None:
    model = onnx_model(str(onnx_file(tmp_path / "m.onnx", size=None)), **ONNX, size=16)
    large = pictures(4, 40)
    small = torch.nn.functional.interpolate(large, (16, 16), mode="bilinear", antialias=True)
    assert torch.allclose(model.logits(large), by_network(small), atol=1e-4)


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
        onnx_model(str(file), **ONNX)


class Corners(nn.Module):
    """The first and the last pixel of each image, as the program gets them."""

    def forward(self, pictures: Tensor) -> Tensor:
        return torch.stack([pictures[:, :, 0, 0], pictures[:, :, -1, -1]], dim=2)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch.jit.script(Corners()).save(tmp_path / "corners.pt")
    return tmp_path / "corners.pt"


@pytest.mark.parametrize(("options", "low", "high"), [({}, 0.0, 255.0), ({"scale": 1.9921875, "shift": -1.0}, -1.0, 0.9921875)])
def test_pictures_come_in_the_range_that_the_program_wants(program: Path, options: dict, low: float, high: float) -> None:
    encoder = registry.create("encoder", f"torchscript:{program}", {"size": 8, **options})
    pictures = torch.stack([torch.zeros(3, 16, 16), torch.ones(3, 16, 16)])
    assert torch.equal(encoder.embed_images(pictures), torch.tensor([[low] * 6, [high] * 6]))


def test_it_knows_no_words(program: Path) -> None:
    with pytest.raises(BadPart, match="images only"):
        registry.create("encoder", f"torchscript:{program}", {}).embed_texts(["a dog"])
