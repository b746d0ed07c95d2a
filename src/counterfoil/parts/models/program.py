"""A classifier that is a program in a file: an ONNX graph, a TorchScript or torch.export program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels
from counterfoil.parts.models.inputs import InputFormat
from counterfoil.parts.models.naming import for_outputs

Scores = Literal["auto", "logits", "probabilities"]


class Runner(Protocol):
    """Runs the program on inputs that are ready."""

    rows: int | None
    """The number of rows it insists on, or None where it takes any."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Its outputs.  # (N, …) → (N, K)"""
        ...

    def to(self, device: torch.device | str) -> Runner: ...

    def provenance(self) -> dict[str, str]: ...


class ProgramModel:
    """A program with the pictures it wants and the names of its outputs. It is run once when made, to see what it gives.

    `scores` says whether outputs are logits or probabilities, whose logarithm is then taken; `auto` looks. `skip` outputs
    before the first class are left out.
    """

    def __init__(
        self,
        runner: Runner,
        inputs: InputFormat,
        *,
        classes: str | Sequence[str] | None = None,
        scores: Scores = "auto",
        skip: int = 0,
        differentiable: bool,
        what: str,
    ) -> None:
        if scores not in get_args(Scores):
            raise BadPart(f"{what}: scores is one of {', '.join(get_args(Scores))}, got {scores!r}")
        self.runner = runner
        self.inputs = inputs
        self._what = what
        self._skip = skip
        outputs = self._tried()
        self._probabilities = scores == "probabilities" or (scores == "auto" and _are_probabilities(outputs))
        names, aliases = for_outputs(classes, outputs.shape[1] - skip, what=what)
        self.classes: Sequence[str] = names
        self.aliases: labels.Aliases | None = aliases
        self.differentiable = differentiable and self._passes_gradients()

    @property
    def size(self) -> int | None:
        """Side of the square pictures the program takes."""
        return self.inputs.preprocessing.side

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax.  # (N, 3, H, W) → (N, K)"""
        scores = self._outputs(images)[:, self._skip :].float()
        if scores.shape[1] != len(self.classes):
            raise BadPart(f"{self._what}: gives {scores.shape[1]} outputs where it gave {len(self.classes)} before")
        return scores.clamp_min(1e-12).log() if self._probabilities else scores

    def to(self, device: torch.device | str) -> ProgramModel:
        """The same model, moved to a device where the program can be."""
        self.runner = self.runner.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The program's hash, and how it was fed and read."""
        scores = "probabilities" if self._probabilities else "logits"
        return {**self.runner.provenance(), "input": repr(self.inputs), "scores": scores}

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
                    f"{self._what}: gives an output of shape {tuple(answer.shape)} for {len(full)} pictures; a classifier gives "
                    "one row of scores a picture"
                )
            answers.append(answer[: len(part)])
        return torch.cat(answers)

    def _tried(self) -> Tensor:
        """The outputs for two pictures."""
        height, width = self.inputs.preprocessing.size or (32, 32)
        images = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            outputs = self._outputs(images)
        if not 0 <= self._skip <= outputs.shape[1] - 2:
            raise BadPart(f"{self._what}: skip leaves out {self._skip} of {outputs.shape[1]} outputs; two or more must be left")
        return outputs

    def _passes_gradients(self) -> bool:
        height, width = self.inputs.preprocessing.size or (32, 32)
        images = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0)).requires_grad_()
        try:
            with torch.enable_grad():
                gradient = torch.autograd.grad(self.logits(images).square().sum(), images)[0]
        except RuntimeError:  # there is no graph: some programs were frozen or detach on the way
            return False
        return bool(torch.isfinite(gradient).all() and gradient.abs().sum() > 0)


def _are_probabilities(outputs: Tensor) -> bool:
    """Whether all rows are probabilities: logits never come to lie in [0, 1] and add up to one."""
    outputs = outputs.float()
    return bool((outputs >= 0).all() and (outputs.sum(dim=1) - 1).abs().max() < 1e-3)
