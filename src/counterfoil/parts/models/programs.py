"""Classifiers that are programs in files: ONNX graphs, TorchScript and torch.export."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from counterfoil.core import errors
from counterfoil.core.errors import BadPart, BadWeights, one_line
from counterfoil.parts import labels, weights
from counterfoil.parts.contracts import Movable, Trait
from counterfoil.parts.models import program_safety
from counterfoil.parts.models.preprocessing import InputFormat, InputOptions, input_format

Scores = Literal["auto", "logits", "probabilities"]

_DTYPES = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(double)": torch.float64,
    "tensor(uint8)": torch.uint8,
}


@dataclass(frozen=True)
class ProgramOptions(InputOptions):
    classes: str | Sequence[str] | None = None
    scores: Scores = "auto"
    skip: int = 0
    sha256: str | None = None


@dataclass(frozen=True)
class OnnxOptions(ProgramOptions):
    output: str | None = None


def onnx_model(path: str, options: OnnxOptions) -> ProgramModel:
    """An ONNX file run by onnxruntime, as a black box without gradients: onnx:model.onnx.

    The graph gets (x · scale − mean) / std of pixels x in [0, 1]; by default ImageNet's mean and standard deviation, or
    levels from 0 to 255 where its input is 8-bit. `size`, `layout` (NCHW, NHWC) and `channels` (rgb, bgr, grey) come from
    the graph unless given; images are resized to `size / crop` and cropped. `classes` names the outputs, ImageNet's where
    there are a thousand; `skip: 1` leaves a background class out. `scores` says logits or probabilities if the program's
    guess is wrong, `output` which output to take.
    """
    what = f"onnx:{path}"
    file = _file(path, options.sha256, what)
    runner = OnnxRunner(file, output=options.output, what=what)
    inputs = input_format(options, runner.shape, dtype=runner.dtype, what=what)
    return ProgramModel(runner, inputs, options, differentiable=False, what=what)


def torchscript_model(path: str, options: ProgramOptions) -> ProgramModel:
    """A TorchScript program: torchscript:model.pt with `size`, and `mean` and `std` unless they are ImageNet's.

    The other options are those of the model `onnx`. Such a file is a program, not only weights: torch reads it without
    Python's pickle and it cannot reach Python, but it runs any operator of torch. Programs that read or write files are
    refused; load only what you trust, and pin it with `sha256`. Gradients are used if it passes them.
    """
    what = f"torchscript:{path}"
    return _torch_model(ScriptRunner(path, options.sha256, what=what), options, what)


def pt2_model(path: str, options: ProgramOptions) -> ProgramModel:
    """A program of torch.export: pt2:model.pt2, with the options of the model `onnx`.

    Only tensors and a graph of ordinary operators are loaded: archives with pickled objects, machine code or calls of
    anything else are refused. Gradients are used if the program passes them.
    """
    what = f"pt2:{path}"
    return _torch_model(ExportRunner(path, options.sha256, what=what), options, what)


def _torch_model(runner: TorchRunner, options: ProgramOptions, what: str) -> ProgramModel:
    inputs = input_format(options, runner.shape, dtype=runner.dtype, what=what)
    return ProgramModel(runner, inputs, options, differentiable=True, what=what)


class ProgramModel(Movable):
    """A program with the images it wants and the names of its outputs. It is run once when made, to see what it gives.

    Outputs are logits, or probabilities, whose logarithm is then taken; with `scores: auto` they are looked at. `skip`
    outputs before the first class are left out.
    """

    def __init__(
        self, runner: OnnxRunner | TorchRunner, inputs: InputFormat, options: ProgramOptions, *, differentiable: bool, what: str
    ) -> None:
        self.runner = runner
        self.inputs, self.size = inputs, inputs.preprocessing.side
        self._options = options
        self._what = what
        outputs = self._try_out()
        self._probabilities = options.scores == "probabilities"
        if options.scores == "auto":  # logits never come to lie in [0, 1] and add up to one
            self._probabilities = bool((outputs >= 0).all() and (outputs.sum(dim=1) - 1).abs().max() < 1e-3)
        names, aliases = labels.names_for_outputs(options.classes, outputs.shape[1] - options.skip, what=what)
        self.classes: Sequence[str] = names
        self.aliases: labels.Aliases | None = aliases
        self.differentiable = differentiable and self._passes_gradients()

    def logits(self, images: Tensor) -> Tensor:
        scores = self._outputs(images)[:, self._options.skip :].float()
        if scores.shape[1] != len(self.classes):
            raise BadPart(f"{self._what}: gives {scores.shape[1]} outputs where it gave {len(self.classes)} before")
        return scores.clamp_min(1e-12).log() if self._probabilities else scores

    def describe(self) -> list[Trait]:
        decided = "a look at two outputs" if self._options.scores == "auto" else "the options"
        return [*self.inputs.preprocessing.describe(), Trait("outputs", self._scores(), decided)]

    def provenance(self) -> dict[str, str]:
        return {**self.runner.provenance(), "input": repr(self.inputs), "scores": self._scores()}

    def _scores(self) -> str:
        return "probabilities" if self._probabilities else "logits"

    def _outputs(self, images: Tensor) -> Tensor:
        inputs = self.inputs(images)
        rows = self.runner.rows
        answers = []
        for part in inputs.split(rows or len(inputs)):
            missing = (rows or 0) - len(part)
            full = torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]) if missing > 0 else part
            answer = self.runner(full)
            if answer.ndim != 2 or len(answer) != len(full):
                raise BadPart(
                    f"{self._what}: gives an output of shape {tuple(answer.shape)} for {len(full)} images; a classifier gives "
                    "one row of scores per image"
                )
            answers.append(answer[: len(part)])
        return torch.cat(answers)

    def _images(self) -> Tensor:
        height, width = self.inputs.preprocessing.size or (32, 32)
        return torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))

    def _try_out(self) -> Tensor:
        """The outputs for two images."""
        with torch.no_grad():
            outputs = self._outputs(self._images()).float()
        skip = self._options.skip
        if not 0 <= skip <= outputs.shape[1] - 2:
            raise BadPart(f"{self._what}: skip leaves out {skip} of {outputs.shape[1]} outputs; two or more must be left")
        return outputs

    def _passes_gradients(self) -> bool:
        images = self._images().requires_grad_()
        try:
            with torch.enable_grad():
                gradient = torch.autograd.grad(self.logits(images).square().sum(), images)[0]
        except RuntimeError:  # there is no graph: some programs were frozen or detach on the way
            return False
        return bool(torch.isfinite(gradient).all() and gradient.abs().sum() > 0)


class OnnxRunner:
    """An onnxruntime session with one image input and one output of scores."""

    def __init__(self, file: Path, *, output: str | None = None, what: str) -> None:
        self._file = file
        self._what = what
        self._provider = "CPUExecutionProvider"
        self._session = self._open()
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            raise BadPart(f"{what}: takes {len(inputs)} inputs ({_names(inputs)}); a classifier takes one, the images")
        if output is not None and output not in [entry.name for entry in outputs]:
            raise BadPart(f"{what}: has no output {output!r}; it has {_names(outputs)}")
        if inputs[0].type not in _DTYPES:
            raise BadPart(f"{what}: its input is a {inputs[0].type}; images come as {', '.join(_DTYPES)}")
        self._input, self._output = inputs[0].name, output or outputs[0].name
        self.dtype = _DTYPES[inputs[0].type]
        self.shape: list[Any] = list(inputs[0].shape)
        self.rows: int | None = self.shape[0] if isinstance(self.shape[0], int) and self.shape[0] > 0 else None

    def __call__(self, inputs: Tensor) -> Tensor:
        """The scores, back on the device the images came from.  # (N, …) → (N, K)"""
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
        """Library and hash of the file, and of the weights next to it if there are any."""
        import onnxruntime

        beside = [file for file in sorted(self._file.parent.glob(f"{self._file.name}[._]data")) if file.is_file()]
        found = {"library": f"onnxruntime {onnxruntime.__version__}", "source": str(self._file), "provider": self._provider}
        found["weights"] = weights.file_sha256(self._file)
        return {**found, **{f"{file.name}": weights.file_sha256(file) for file in beside}}

    def _open(self) -> Any:
        onnxruntime = errors.require("onnxruntime", what=self._what)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        settings.log_severity_level = 3  # errors only
        providers = list(dict.fromkeys([self._provider, "CPUExecutionProvider"]))
        try:
            return onnxruntime.InferenceSession(str(self._file), settings, providers=providers)
        except Exception as error:  # onnxruntime's errors have no common base but this
            raise BadWeights(f"{self._file}: onnxruntime cannot load it: {one_line(error)}") from None


class TorchRunner:
    """A program that torch runs."""

    rows: int | None = None
    """The number of rows it insists on, or None where it takes any."""
    shape: Sequence[Any] | None = None
    dtype: torch.dtype = torch.float32

    def __init__(self, file: Path, module: nn.Module) -> None:
        self._file = file
        self.module = module
        for parameter in module.parameters():
            parameter.requires_grad_(False)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The program's outputs.  # (N, …) → (N, K)"""
        what = str(self._file)
        try:
            answer = self.module(inputs)
        except (RuntimeError, AssertionError, ValueError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]  # the last line says what went wrong
            problem = lines[-1][:200] if lines else repr(error)
            raise BadPart(f"{what}: fails on an input of shape {tuple(inputs.shape)}: {problem}") from error
        if isinstance(answer, list | tuple) and answer:
            answer = answer[0]
        if isinstance(answer, dict):
            answer = answer.get("logits", next(iter(answer.values()), None))
        if not isinstance(answer, Tensor):
            raise BadPart(f"{what}: gives a {type(answer).__name__}; a classifier gives one row of scores per image")
        return answer

    def to(self, device: torch.device | str) -> Self:
        self.module.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        program = weights.file_sha256(self._file)
        # A frozen program has its weights in its text.
        held = weights.fingerprint(self.module) if self.module.state_dict() else program
        return {"library": f"torch {torch.__version__}", "source": str(self._file), "program": program, "weights": held}


class ScriptRunner(TorchRunner):
    """A TorchScript module."""

    def __init__(self, path: str, sha256: str | None, *, what: str) -> None:
        file = _file(path, sha256, what)
        content = file.read_bytes()
        program_safety.check_script(content, file)
        with weights.loading(file):
            super().__init__(file, torch.jit.load(io.BytesIO(content), map_location="cpu").eval())


class ExportRunner(TorchRunner):
    """A program of torch.export."""

    def __init__(self, path: str, sha256: str | None, *, what: str) -> None:
        file = _file(path, sha256, what)
        content = file.read_bytes()
        program_safety.check_export(content, file)
        logger = logging.getLogger("torch.export")
        level = logger.level
        try:
            logger.setLevel(logging.CRITICAL)  # it logs what it raises anyway
            with weights.loading(file):
                self._program = torch.export.load(io.BytesIO(content))
        finally:
            logger.setLevel(level)
        example = self._example(what)
        self.shape = [side if isinstance(side, int) else None for side in example.shape]
        self.dtype, self.rows = example.dtype, self.shape[0]
        super().__init__(file, self._module())

    def to(self, device: torch.device | str) -> Self:
        """The same program for a device: the tensors moved, and the devices written into its graph changed."""
        from torch.export.passes import move_to_device_pass

        self._program = move_to_device_pass(self._program, str(device))
        super().__init__(self._file, self._module())
        return self

    def _example(self, what: str) -> Tensor:
        """A stand-in for the one tensor the program takes, with its shape and dtype."""
        names = self._program.graph_signature.user_inputs
        found = [node.meta.get("val") for node in self._program.graph.nodes if node.op == "placeholder" and node.name in names]
        if len(found) != 1 or not isinstance(found[0], Tensor):
            raise BadPart(f"{what}: takes {len(names)} inputs; a classifier takes one, the images")
        return found[0]

    def _module(self) -> nn.Module:
        # Its guards are text that would be run as Python; sizes are kept by `rows` and `shape` instead.
        return self._program.module(check_guards=False)


def _file(path: str, sha256: str | None, what: str) -> Path:
    file = Path(path).expanduser()
    if not path or not file.is_file():
        raise BadWeights(f"{what}: no such file; name an exported program, as in {what.partition(':')[0]}:FILE")
    if sha256 is not None:
        weights.check_hash(file, sha256)
    return file


def _names(entries: Sequence[Any]) -> str:
    return ", ".join(repr(entry.name) for entry in entries)
