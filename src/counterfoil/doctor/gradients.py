"""Gradients, one step through the generator, and what the generator's reconstruction alone costs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import one_line
from counterfoil.core.spec import SearchSpec
from counterfoil.doctor.sample import FewImages, Finding, SetUp, ask_in_batches, judge, percent, share
from counterfoil.engine.guidance import StepLength
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.metrics.estimate import mcnemar
from counterfoil.parts.contracts import Generator, Model

LENGTHS = (1e-4, 3e-4, 1e-3, 3e-3)  # of the difference, root-mean-square a pixel: below them rounding, above them curvature
IMAGES = 8
AGREES = (0.5, 1.5)  # slope by differences / length of the gradient
_LET_THROUGH = "look for detach(), no_grad, rounding or NumPy on the way; or say differentiable = False to have it searched"

Rows = dict[str, str]


def slopes(model: Model, few: FewImages) -> tuple[Tensor, Tensor, Tensor]:
    """Lengths of the gradient in the pixels, slopes by differences over these lengths, and losses.  # (N,) each

    Raises RuntimeError where there is no graph.
    """

    def losses(images: Tensor) -> Tensor:
        return F.cross_entropy(model.logits(images).float().double(), truth, reduction="none")

    images, truth = few.images[:IMAGES], few.truth[:IMAGES]
    leaf = images.clone().requires_grad_()
    with torch.enable_grad():
        loss = losses(leaf)
        gradient = torch.autograd.grad(loss.sum(), leaf)[0]
    length = gradient.flatten(1).norm(dim=1)
    towards = gradient / length.clamp_min(1e-30).reshape(-1, 1, 1, 1)
    ratios = []
    for reach in (size * images[0].numel() ** 0.5 for size in LENGTHS):
        with torch.no_grad():
            rise = losses(images + reach * towards) - losses(images - reach * towards)
        ratios.append(rise.float() / (2 * reach) / length.clamp_min(1e-30))
    stacked = torch.stack(ratios)  # (lengths, N)
    best = (stacked - 1).abs().nan_to_num(nan=float("inf")).argmin(0)
    return length.detach(), stacked.gather(0, best[None])[0], loss.detach()


def check_gradients(model: Model, few: FewImages) -> tuple[Rows, list[Finding]]:
    """Measure the model's gradient and compare it with the slope of its loss."""
    if not model.differentiable:
        return {"gradient": "none: a black box, searched by asking"}, []
    try:
        length, ratios, loss = slopes(model, few)
    except RuntimeError as error:
        says = "the model says it has gradients, and none reaches the images"
        return {"gradient": "blocked"}, [Finding("gradients", says, one_line(error), _LET_THROUGH)]
    if bad := int((~torch.isfinite(length)).sum()):
        says = f"the gradient is not finite for {bad} of {len(length)} images"
        remedy = "check the weights, and the precision"
        return {"gradient": "not finite"}, [Finding("gradients", says, "NaN or infinity", remedy)]
    # Where the model is certain the loss is flat to the last bit; that is no fault of its gradient.
    certain = loss < 1e-4
    zero = (length < 1e-12) & ~certain
    rows = {
        "gradient": f"length {length.median():.3g} (median of {len(length)})",
        "flat images": f"{int(zero.sum())}, and {int(certain.sum())} the model is certain of",
    }
    if zero.any():
        says = f"the gradient is zero for {int(zero.sum())} of {len(zero)} images that the model is not certain of"
        return rows, [Finding("gradients", says, f"their losses are {loss[zero].min():.3g} and more", _LET_THROUGH)]
    usable = ~certain & torch.isfinite(ratios)
    if not usable.any():
        return rows, []
    ratio = ratios[usable].median().item()
    rows["slope by differences / gradient"] = f"{ratio:.3f} (median of {int(usable.sum())}; 1 is right)"
    if AGREES[0] <= ratio <= AGREES[1]:
        return rows, []
    says = "the gradient is not the slope of the loss: part of the way does not pass it, or passes something else"
    evidence = f"slope by differences / length of the gradient is {ratio:.3f}, where 1 is right"
    return rows, [Finding("gradients", says, evidence, _LET_THROUGH)]


def check_step(model: Model, generator: Generator, few: FewImages, search: SearchSpec) -> tuple[Rows, list[Finding]]:
    """Take one step through the generator and see whether it raises the model's loss."""

    def losses(rendered: Tensor) -> Tensor:
        images = RoundTo8Bits.apply(rendered.float())
        return F.cross_entropy(model.logits(images).float(), some.truth, reduction="none")

    some = few.rows(slice(0, IMAGES))
    with torch.no_grad():
        state = generator.start(some.images, some.labels, some.seeds)
    leaf = state[generator.moving].detach().requires_grad_()
    try:
        with torch.enable_grad():
            before = losses(generator.render({**state, generator.moving: leaf}))
            gradient = torch.autograd.grad(before.sum(), leaf)[0].float()
    except RuntimeError as error:
        says = "no gradient passes through the generator"
        return {"through the generator": "blocked"}, [Finding("gradients", says, one_line(error), _LET_THROUGH)]
    if not gradient.any() or not bool(torch.isfinite(gradient).all()):
        problem = "not finite" if gradient.any() else "zero"
        says = f"the gradient through the generator is {problem}"
        return {"through the generator": problem}, [Finding("gradients", says, f"{len(some)} images", _LET_THROUGH)]
    length = StepLength(generator.step_size if search.step is None else search.step, search.norm, search.unit)
    with torch.no_grad():
        signal = length.scale_to_step(gradient, state["scale"])
        after = losses(generator.render(dict(generator.step(state, signal))))
    risen = (after > before).float().mean().item()
    rows = {"one step through the generator": f"raises the loss of {risen:.0%} of {len(some)} images"}
    if risen >= 0.5:
        return rows, []
    says, evidence = "a step along the gradient lowers the loss more often than not", f"of {len(some)} images, {risen:.0%} rise"
    return rows, [Finding("step length", says, evidence, "try a smaller search.step", severity="caution")]


def check_reconstruction(setup: SetUp, few: FewImages, clean: Tensor) -> tuple[Rows, list[Finding]]:
    """Distance, the model's accuracy on reconstructions and the oracle's acceptance of them. `clean`: right before.  # (N,)"""
    if setup.generator is None or setup.oracle is None:
        return {}, []
    images = reconstruct(setup.generator, few)
    noise = psnr(few.images, images)
    even = psnr(few.images, few.images.mean((2, 3), keepdim=True).expand_as(few.images))  # of an image of one colour
    right = ask_in_batches(setup.model.logits, images).argmax(1) == few.truth
    given, _ = judge(setup.oracle, images, few.labels, few.ids, len(setup.dataset.classes))
    lost, won = int((clean & ~right).sum()), int((right & ~clean).sum())
    rows = {
        "PSNR": f"{noise.median():.1f} dB (median)" if noise.min() < 100 else "images come back unchanged",
        "accuracy on reconstructions": percent(share(right)),
        "what reconstruction alone costs": f"{100 * (lost - won) / len(few):.1f} points (lost {lost}, won {won})",
        "accepted by the oracle (VR)": percent(share(given[given >= 0] == 1)),
    }
    if float((noise - even).median()) <= 0:
        says = "the generator does not reconstruct these images"
        evidence = f"median PSNR {noise.median():.1f} dB; an even image of each one's mean colour has {even.median():.1f} dB"
        remedy = "check its weights, its image size, and that it was trained on such images"
        return rows, [Finding("reconstruction", says, evidence, remedy)]
    if lost > won and mcnemar(lost, won) < 0.01:
        says = "reconstruction alone costs the model accuracy, which FMR charges to the model"
        remedy = "compare PA with PA_reconstruction, or choose a generator that reconstructs better"
        return rows, [Finding("reconstruction", says, f"lost on {lost} images, won on {won}", remedy, severity="caution")]
    return rows, []


def reconstruct(generator: Generator, few: FewImages) -> Tensor:
    """Render the images as the generator starts from them, in 8 bits.  # → (N, 3, H, W)"""
    with torch.no_grad():
        rendered = [generator.render(generator.start(part.images, part.labels, part.seeds)).float() for part in few.batches()]
    return (torch.cat(rendered).clamp(0, 1) * 255).round() / 255


def psnr(first: Tensor, second: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels; at most 100, where images are equal.  # (N, 3, H, W) twice → (N,)"""
    return -10 * (first - second).square().flatten(1).mean(1).clamp_min(1e-10).log10()
