"""Whether the model's gradient is there, and is the slope of its loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import one_line
from counterfoil.core.spec import SearchSpec
from counterfoil.doctor.findings import Finding
from counterfoil.doctor.sample import Handful
from counterfoil.engine.guidance import StepLength
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.parts.contracts import Generator, Model

LENGTHS = (1e-4, 3e-4, 1e-3, 3e-3)  # of the difference, root-mean-square a pixel: below them rounding, above them curvature
IMAGES = 8
AGREES = (0.5, 1.5)  # slope by differences / length of the gradient


@dataclass(frozen=True)
class Slopes:
    """The model's gradient in the pixels, held against differences of its loss along it."""

    length: Tensor  # (N,) of the gradient
    ratio: Tensor  # (N,) slope by differences / length
    loss: Tensor  # (N,)


def slopes(model: Model, few: Handful) -> Slopes:
    """Gradients by differentiation and by differences. Raises RuntimeError where there is no graph."""
    images, truth = few.images[:IMAGES], few.truth[:IMAGES]
    leaf = images.clone().requires_grad_()
    with torch.enable_grad():
        loss = F.cross_entropy(model.logits(leaf).float(), truth, reduction="none")
        gradient = torch.autograd.grad(loss.sum(), leaf)[0]
    length = gradient.flatten(1).norm(dim=1)
    towards = gradient / length.clamp_min(1e-30).reshape(-1, 1, 1, 1)
    ratios = []
    for size in LENGTHS:
        reach = size * images[0].numel() ** 0.5
        with torch.no_grad():
            above = F.cross_entropy(model.logits(images + reach * towards).double(), truth, reduction="none")
            below = F.cross_entropy(model.logits(images - reach * towards).double(), truth, reduction="none")
        ratios.append((above - below).float() / (2 * reach) / length.clamp_min(1e-30))
    stacked = torch.stack(ratios)  # (lengths, N)
    best = (stacked - 1).abs().nan_to_num(nan=float("inf")).argmin(0)
    return Slopes(length.detach(), stacked.gather(0, best[None])[0], loss.detach())


def check_gradients(model: Model, few: Handful) -> tuple[dict[str, str], list[Finding]]:
    """What is measured, and what is wrong with it."""
    if not model.differentiable:
        return {"gradient": "none: a black box, searched by asking"}, []
    try:
        found = slopes(model, few)
    except RuntimeError as error:
        return {"gradient": "blocked"}, [
            _blocked("the model says it has gradients, and none reaches the pictures", one_line(error))
        ]
    if not bool(torch.isfinite(found.length).all()):
        bad = int((~torch.isfinite(found.length)).sum())
        text = f"the gradient is not finite for {bad} of {len(found.length)} pictures"
        return {"gradient": "not finite"}, [_blocked(text, "NaN or infinity", remedy="check the weights, and the precision")]
    # Where the model is certain the loss is flat to the last bit; that is no fault of its gradient.
    certain = found.loss < 1e-4
    zero = (found.length < 1e-12) & ~certain
    rows = {
        "gradient": f"length {found.length.median():.3g} (median of {len(found.length)})",
        "flat pictures": f"{int(zero.sum())}, and {int(certain.sum())} the model is certain of",
    }
    if zero.any():
        text = f"the gradient is zero for {int(zero.sum())} of {len(zero)} pictures that the model is not certain of"
        return rows, [_blocked(text, f"their losses are {found.loss[zero].min():.3g} and more")]
    usable = ~certain & torch.isfinite(found.ratio)
    if not usable.any():
        return rows, []
    ratio = found.ratio[usable].median().item()
    rows["slope by differences / gradient"] = f"{ratio:.3f} (median of {int(usable.sum())}; 1 is right)"
    if not AGREES[0] <= ratio <= AGREES[1]:
        text = "the gradient is not the slope of the loss: part of the way does not pass it, or passes something else"
        return rows, [_blocked(text, f"slope by differences / length of the gradient is {ratio:.3f}, where 1 is right")]
    return rows, []


def check_climb(model: Model, generator: Generator, few: Handful, search: SearchSpec) -> tuple[dict[str, str], list[Finding]]:
    """Whether one step through the generator raises the model's loss."""
    if not model.differentiable:
        return {}, []
    some = few.rows(slice(0, IMAGES))
    with torch.no_grad():
        state = generator.start(some.images, some.labels, some.seeds)
    leaf = state[generator.moving].detach().requires_grad_()
    try:
        with torch.enable_grad():
            pictures = RoundTo8Bits.apply(generator.render({**state, generator.moving: leaf}).float())
            before = F.cross_entropy(model.logits(pictures).float(), some.truth, reduction="none")
            gradient = torch.autograd.grad(before.sum(), leaf)[0].float()
    except RuntimeError as error:
        return {"through the generator": "blocked"}, [_blocked("no gradient passes through the generator", one_line(error))]
    flat = gradient.flatten(1).norm(dim=1) == 0
    if bool(flat.all()) or not bool(torch.isfinite(gradient).all()):
        kind = "zero" if bool(flat.all()) else "not finite"
        return {"through the generator": kind}, [
            _blocked(f"the gradient through the generator is {kind}", f"{len(flat)} pictures")
        ]
    length = StepLength(generator.step_size if search.step is None else search.step, search.norm, search.unit)
    with torch.no_grad():
        signal = length.scale_to_step(gradient, state["scale"])
        moved = RoundTo8Bits.apply(generator.render(dict(generator.step(state, signal))).float())
        after = F.cross_entropy(model.logits(moved).float(), some.truth, reduction="none")
    risen = (after > before).float().mean().item()
    rows = {"one step through the generator": f"raises the loss of {risen:.0%} of {len(flat)} pictures"}
    if risen < 0.5:
        text, evidence = (
            "a step along the gradient lowers the loss more often than not",
            f"of {len(flat)} pictures, {risen:.0%} rise",
        )
        return rows, [Finding("step length", text, evidence, "try a smaller search.step", severity="caution")]
    return rows, []


def _blocked(says: str, evidence: str, *, remedy: str = "") -> Finding:
    advice = "look for detach(), no_grad, rounding or NumPy on the way; or say differentiable = False to have it searched"
    return Finding("gradients", says, evidence, remedy or advice)
