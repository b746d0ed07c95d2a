"""ONNX graphs, run by onnxruntime as black boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil.core import extras
from counterfoil.core.errors import BadPart, BadWeights, one_line
from counterfoil.parts import weights
from counterfoil.parts.models.inputs import input_format
from counterfoil.parts.models.program import ProgramModel
from counterfoil.parts.models.program_options import ProgramOptions, takes

_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(double)": torch.float64,
    "tensor(uint8)": torch.uint8,
}


@dataclass(frozen=True)
class OnnxOptions(ProgramOptions):
    """The options of any program, and which of a graph's outputs to take."""

    output: str | None = None


@takes(OnnxOptions)
def onnx_model(path: str, options: OnnxOptions) -> ProgramModel:
    """An ONNX file run by onnxruntime, as a black box without gradients: onnx:model.onnx.

    The graph gets (x · scale − mean) / std of pixels x in [0, 1]; by default ImageNet's mean and standard deviation, or
    levels from 0 to 255 where its input is 8-bit. `size`, `layout` (NCHW, NHWC) and `channels` (rgb, bgr, grey) come from
    the graph unless given; pictures are resized to `size / crop` and cropped. `classes` names the outputs, ImageNet's where
    there are a thousand; `skip: 1` leaves a background class out. `scores` says logits or probabilities if the program's
    guess is wrong, `output` which output to take.
    """
    what = f"onnx:{path}"
    file = Path(path).expanduser()
    if not path or not file.is_file():
        raise BadWeights(f"{what}: no such file; name an ONNX file, as in onnx:model.onnx")
    if options.sha256 is not None:
        weights.check_hash(file, options.sha256)
    runner = OnnxRunner(file, output=options.output, what=what)
    inputs = input_format(options, runner.shape, dtype=runner.dtype, what=what)
    return ProgramModel(
        runner, inputs, classes=options.classes, scores=options.scores, skip=options.skip, differentiable=False, what=what
    )


class OnnxRunner:
    """An onnxruntime session with one picture input and one output of scores."""

    def __init__(self, file: Path, *, output: str | None = None, what: str) -> None:
        self._file = file
        self._what = what
        self._provider = "CPUExecutionProvider"
        self._session = self._open()
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            raise BadPart(f"{what}: takes {len(inputs)} inputs ({_names(inputs)}); a classifier takes one, the pictures")
        if output is not None and output not in [entry.name for entry in outputs]:
            raise BadPart(f"{what}: has no output {output!r}; it has {_names(outputs)}")
        if inputs[0].type not in _DTYPES:
            raise BadPart(f"{what}: its input is a {inputs[0].type}; pictures come as {', '.join(_DTYPES)}")
        self._input, self._output = inputs[0].name, output or outputs[0].name
        self.dtype = _DTYPES[inputs[0].type]
        self.shape: list[Any] = list(inputs[0].shape)
        self.rows: int | None = self.shape[0] if isinstance(self.shape[0], int) and self.shape[0] > 0 else None

    def __call__(self, inputs: Tensor) -> Tensor:
        """The scores, back on the device the pictures came from.  # (N, …) → (N, K)"""
        feed = {self._input: inputs.detach().cpu().numpy()}
        try:
            (answer,) = self._session.run([self._output], feed)
        except Exception as error:  # onnxruntime's errors have no common base but this
            raise BadPart(f"{self._what}: onnxruntime fails on {list(inputs.shape)}: {one_line(error)}") from None
        return torch.as_tensor(answer).to(inputs.device)

    def to(self, device: torch.device | str) -> OnnxRunner:
        """The same graph on a GPU if onnxruntime was built for it; else it stays where it is."""
        import onnxruntime

        gpu = torch.device(device).type == "cuda" and "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        wanted = "CUDAExecutionProvider" if gpu else "CPUExecutionProvider"
        if wanted != self._provider:
            self._provider = wanted
            self._session = self._open()
        return self

    def provenance(self) -> dict[str, str]:
        """Library and hash of the file, and of the weights beside it if there are any."""
        import onnxruntime

        beside = [file for file in sorted(self._file.parent.glob(f"{self._file.name}[._]data")) if file.is_file()]
        found = {"library": f"onnxruntime {onnxruntime.__version__}", "source": str(self._file), "provider": self._provider}
        found["weights"] = weights.file_sha256(self._file)
        return {**found, **{f"{file.name}": weights.file_sha256(file) for file in beside}}

    def _open(self) -> Any:
        onnxruntime = extras.require("onnxruntime", extra="onnx", what=self._what)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        settings.log_severity_level = 3  # errors only
        providers = list(dict.fromkeys([self._provider, "CPUExecutionProvider"]))
        try:
            return onnxruntime.InferenceSession(str(self._file), settings, providers=providers)
        except Exception as error:  # onnxruntime's errors have no common base but this
            raise BadWeights(f"{self._file}: onnxruntime cannot load it: {one_line(error)}") from None


def _names(entries: Sequence[Any]) -> str:
    return ", ".join(repr(entry.name) for entry in entries)
