"""Programs that torch exported: TorchScript and torch.export."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.models import program_safety
from counterfoil.parts.models.inputs import input_format
from counterfoil.parts.models.program import ProgramModel
from counterfoil.parts.models.program_options import ProgramOptions, takes


@takes(ProgramOptions)
def torchscript_model(path: str, options: ProgramOptions) -> ProgramModel:
    """A TorchScript program: torchscript:model.pt with `size`, and `mean` and `std` unless they are ImageNet's.

    The other options are those of the model `onnx`. Such a file is a program, not only weights: torch reads it without
    Python's pickle and it cannot reach Python, but it runs any operator of torch. Programs that read or write files are
    refused; load only what you trust, and pin it with `sha256`. Gradients are used if it passes them.
    """
    what = f"torchscript:{path}"
    file, content = _read(path, options.sha256, what)
    program_safety.check_script(content, file)
    runner = ScriptRunner(file, content)
    inputs = input_format(options, None, what=what)
    return ProgramModel(
        runner, inputs, classes=options.classes, scores=options.scores, skip=options.skip, differentiable=True, what=what
    )


@takes(ProgramOptions)
def pt2_model(path: str, options: ProgramOptions) -> ProgramModel:
    """A program of torch.export: pt2:model.pt2, with the options of the model `onnx`.

    Only tensors and a graph of ordinary operators are loaded: archives with pickled objects, machine code or calls of
    anything else are refused. Gradients are used if the program passes them.
    """
    what = f"pt2:{path}"
    file, content = _read(path, options.sha256, what)
    program_safety.check_export(content, file)
    runner = ExportRunner(file, content, what=what)
    inputs = input_format(options, runner.shape, dtype=runner.dtype, what=what)
    return ProgramModel(
        runner, inputs, classes=options.classes, scores=options.scores, skip=options.skip, differentiable=True, what=what
    )


class ScriptRunner:
    """A TorchScript module."""

    rows: int | None = None

    def __init__(self, file: Path, content: bytes) -> None:
        self._file = file
        with weights.loading(file), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TorchScript is deprecated, not gone
            self.module: nn.Module = torch.jit.load(io.BytesIO(content), map_location="cpu")
        self.module.eval()
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)

    def __call__(self, inputs: Tensor) -> Tensor:
        """The program's outputs.  # (N, …) → (N, K)"""
        return _run(self.module, inputs, str(self._file))

    def to(self, device: torch.device | str) -> ScriptRunner:
        """The same program with its tensors on a device."""
        self.module.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, hash of the file, and of the weights in it."""
        return _provenance(self._file, self.module)


class ExportRunner:
    """A program of torch.export."""

    def __init__(self, file: Path, content: bytes, *, what: str) -> None:
        self._file = file
        level = logging.getLogger("torch.export").level
        try:
            logging.getLogger("torch.export").setLevel(logging.CRITICAL)  # it logs what it raises anyway
            with weights.loading(file), program_safety.tensors_only():
                self._program = torch.export.load(io.BytesIO(content))
        finally:
            logging.getLogger("torch.export").setLevel(level)
        example = self._input(what)
        self.shape = [side if isinstance(side, int) else None for side in example.shape]
        self.dtype: torch.dtype = example.dtype
        self.rows: int | None = self.shape[0]
        self.module = self._module()

    def __call__(self, inputs: Tensor) -> Tensor:
        """The program's outputs.  # (N, …) → (N, K)"""
        return _run(self.module, inputs, str(self._file))

    def to(self, device: torch.device | str) -> ExportRunner:
        """The same program for a device: the tensors moved, and the devices written into its graph changed."""
        from torch.export.passes import move_to_device_pass

        self._program = move_to_device_pass(self._program, str(device))
        self.module = self._module()
        return self

    def provenance(self) -> dict[str, str]:
        """Library, hash of the file, and of the weights in it."""
        return _provenance(self._file, self.module)

    def _input(self, what: str) -> Tensor:
        """A stand-in for the one tensor the program takes, with its shape and type."""
        names = self._program.graph_signature.user_inputs
        found = [node.meta.get("val") for node in self._program.graph.nodes if node.op == "placeholder" and node.name in names]
        if len(found) != 1 or not isinstance(found[0], Tensor):
            raise BadPart(f"{what}: takes {len(names)} inputs; a classifier takes one, the pictures")
        return found[0]

    def _module(self) -> nn.Module:
        # Its guards are text that would be run as Python; sizes are kept by `rows` and `shape` instead.
        module = self._program.module(check_guards=False)
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        return module


def _read(path: str, sha256: str | None, what: str) -> tuple[Path, bytes]:
    file = Path(path).expanduser()
    if not path or not file.is_file():
        raise BadWeights(f"{what}: no such file; name an exported program")
    if sha256 is not None:
        weights.check_hash(file, sha256)
    return file, file.read_bytes()


def _run(module: Callable[[Tensor], Any], inputs: Tensor, what: str) -> Tensor:
    try:
        answer = module(inputs)
    except (RuntimeError, AssertionError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]  # the last line says what went wrong
        raise BadPart(
            f"{what}: fails on an input of shape {tuple(inputs.shape)}: {lines[-1][:200] if lines else error!r}"
        ) from error
    if isinstance(answer, list | tuple) and answer:
        answer = answer[0]
    if isinstance(answer, dict):
        answer = answer.get("logits", next(iter(answer.values()), None))
    if not isinstance(answer, Tensor):
        raise BadPart(f"{what}: gives a {type(answer).__name__}; a classifier gives one row of scores a picture")
    return answer


def _provenance(file: Path, module: nn.Module) -> dict[str, str]:
    program = weights.file_sha256(file)
    held = weights.fingerprint(module) if module.state_dict() else program  # a frozen program has its weights in its text
    return {"library": f"torch {torch.__version__}", "source": str(file), "program": program, "weights": held}
