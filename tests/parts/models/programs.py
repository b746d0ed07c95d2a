"""A small classifier as the programs that models are handed over as."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.fakes import TinyModel


class Network(nn.Module):
    """The tiny model without anything that is not a network."""

    def __init__(self, *, softmax: bool = False, background: bool = False) -> None:
        super().__init__()
        self.body = TinyModel().body
        self.softmax = softmax
        self.background = background

    def forward(self, inputs: Tensor) -> Tensor:
        scores = self.body(inputs)
        if self.background:
            scores = torch.cat([torch.zeros_like(scores[:, :1]), scores], dim=1)
        return scores.softmax(dim=1) if self.softmax else scores


def export_program(file: Path, *, rows: int | None = None, **options: Any) -> Path:
    """Saved by torch.export; with `rows`, for that many images only."""
    shapes = None if rows else {"inputs": {0: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(Network(**options).eval(), (torch.rand(rows or 2, 3, 16, 16),), dynamic_shapes=shapes)
    torch.export.save(program, file)
    return file


def script_program(file: Path, *, freeze: bool = False, module: nn.Module | None = None, **options: Any) -> Path:
    """Saved by TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.jit.script((module or Network(**options)).eval())
        program = torch.jit.freeze(program) if freeze else program
        program.save(str(file))
    return file


def onnx_file(
    file: Path,
    *,
    rows: int | None = None,
    layout: str = "NCHW",
    bytes_in: bool = False,
    softmax: bool = False,
    size: int | None = 16,
) -> Path:
    """The tiny model's layers written as an ONNX graph."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = {name: value.detach().numpy() for name, value in Network().state_dict().items()}
    nodes: list[Any] = []
    seen = "inputs"

    def add(kind: str, *inputs: str, **attributes: Any) -> None:
        nonlocal seen
        output = f"value_{len(nodes)}"
        nodes.append(helper.make_node(kind, [seen, *inputs], [output], **attributes))
        seen = output

    if bytes_in:
        add("Cast", to=TensorProto.FLOAT)
    if layout == "NHWC":
        add("Transpose", perm=[0, 3, 1, 2])
    for number, stride in ((0, 2), (2, 1)):
        add("Conv", f"body.{number}.weight", f"body.{number}.bias", strides=[stride, stride], pads=[1, 1, 1, 1])
        before = seen
        add("Sigmoid")
        nodes.append(helper.make_node("Mul", [before, seen], [f"value_{len(nodes)}"]))
        seen = f"value_{len(nodes) - 1}"
    add("AveragePool", kernel_shape=[2, 2], strides=[2, 2])  # 8 pixels to the 4 of the adaptive layer
    add("Flatten")
    add("Gemm", "body.6.weight", "body.6.bias", transB=1)
    if softmax:
        add("Softmax", axis=1)
    nodes.append(helper.make_node("Identity", [seen], ["scores"]))
    side = size or "side"
    shape = [rows or "rows", 3, side, side] if layout == "NCHW" else [rows or "rows", side, side, 3]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("inputs", TensorProto.UINT8 if bytes_in else TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [rows or "rows", 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file
