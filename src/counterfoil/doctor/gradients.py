"""Gradients, one step through the generator, and what the generator's reconstruction alone costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import one_line
from counterfoil.core.spec import SearchSpec
from counterfoil.doctor.sample import FewImages, Finding, SetUp, ask_in_batches, percent, share, verdicts
from counterfoil.engine.guidance import StepLength
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.metrics.significance import mcnemar
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


def slopes(model: Model, few: FewImages) -> Slopes:
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


def check_gradients(model: Model, few: FewImages) -> tuple[dict[str, str], list[Finding]]:
    """Measure the model's gradient and compare it with the slope of its loss."""
    if not model.differentiable:
        return {"gradient": "none: a black box, searched by asking"}, []
    try:
        found = slopes(model, few)
    except RuntimeError as error:
        return {"gradient": "blocked"}, [
            _blocked("the model says it has gradients, and none reaches the images", one_line(error))
        ]
    if not bool(torch.isfinite(found.length).all()):
        bad = int((~torch.isfinite(found.length)).sum())
        text = f"the gradient is not finite for {bad} of {len(found.length)} images"
        return {"gradient": "not finite"}, [_blocked(text, "NaN or infinity", remedy="check the weights, and the precision")]
    # Where the model is certain the loss is flat to the last bit; that is no fault of its gradient.
    certain = found.loss < 1e-4
    zero = (found.length < 1e-12) & ~certain
    rows = {
        "gradient": f"length {found.length.median():.3g} (median of {len(found.length)})",
        "flat images": f"{int(zero.sum())}, and {int(certain.sum())} the model is certain of",
    }
    if zero.any():
        text = f"the gradient is zero for {int(zero.sum())} of {len(zero)} images that the model is not certain of"
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


def check_step(model: Model, generator: Generator, few: FewImages, search: SearchSpec) -> tuple[dict[str, str], list[Finding]]:
    """Take one step through the generator and see whether it raises the model's loss."""
    if not model.differentiable:
        return {}, []
    some = few.rows(slice(0, IMAGES))
    with torch.no_grad():
        state = generator.start(some.images, some.labels, some.seeds)
    leaf = state[generator.moving].detach().requires_grad_()
    try:
        with torch.enable_grad():
            images = RoundTo8Bits.apply(generator.render({**state, generator.moving: leaf}).float())
            before = F.cross_entropy(model.logits(images).float(), some.truth, reduction="none")
            gradient = torch.autograd.grad(before.sum(), leaf)[0].float()
    except RuntimeError as error:
        return {"through the generator": "blocked"}, [_blocked("no gradient passes through the generator", one_line(error))]
    flat = gradient.flatten(1).norm(dim=1) == 0
    if bool(flat.all()) or not bool(torch.isfinite(gradient).all()):
        kind = "zero" if bool(flat.all()) else "not finite"
        return {"through the generator": kind}, [_blocked(f"the gradient through the generator is {kind}", f"{len(flat)} images")]
    length = StepLength(generator.step_size if search.step is None else search.step, search.norm, search.unit)
    with torch.no_grad():
        signal = length.scale_to_step(gradient, state["scale"])
        moved = RoundTo8Bits.apply(generator.render(dict(generator.step(state, signal))).float())
        after = F.cross_entropy(model.logits(moved).float(), some.truth, reduction="none")
    risen = (after > before).float().mean().item()
    rows = {"one step through the generator": f"raises the loss of {risen:.0%} of {len(flat)} images"}
    if risen < 0.5:
        text, evidence = (
            "a step along the gradient lowers the loss more often than not",
            f"of {len(flat)} images, {risen:.0%} rise",
        )
        return rows, [Finding("step length", text, evidence, "try a smaller search.step", severity="caution")]
    return rows, []


def _blocked(says: str, evidence: str, *, remedy: str = "") -> Finding:
    advice = "look for detach(), no_grad, rounding or NumPy on the way; or say differentiable = False to have it searched"
    return Finding("gradients", says, evidence, remedy or advice)


def reconstruct(generator: Generator, few: FewImages) -> Tensor:
    """Render the images as the generator starts from them, in 8 bits.  # → (N, 3, H, W)"""
    rendered = []
    rows = CPU_BATCH if few.images.device.type == "cpu" else 64
    with torch.no_grad():
        for at in range(0, len(few), rows):
            part = few.rows(slice(at, at + rows))
            rendered.append(generator.render(generator.start(part.images, part.labels, part.seeds)).float())
    return (torch.cat(rendered).clamp(0, 1) * 255).round() / 255


def check_reconstruction(setup: SetUp, few: FewImages, clean: Tensor) -> tuple[dict[str, str], list[Finding]]:
    """Likeness, the model's accuracy on reconstructions and the oracle's acceptance of them. `clean`: right before.  # (N,)"""
    if setup.generator is None or setup.oracle is None:
        return {}, []
    images = reconstruct(setup.generator, few)
    noise, likeness = psnr(few.images, images), ssim(few.images, images)
    right = ask_in_batches(setup.model.logits, images).argmax(1) == few.truth
    given = verdicts(setup.oracle, images, few.labels, len(setup.dataset.classes))
    lost, won = int((clean & ~right).sum()), int((right & ~clean).sum())
    rows = {
        "PSNR": f"{noise.median():.1f} dB (median)" if noise.min() < 100 else "images come back unchanged",
        "SSIM": f"{likeness.median():.3f} (median)",
        "accuracy on reconstructions": percent(share(right)),
        "what reconstruction alone costs": f"{100 * (lost - won) / len(few):.1f} points (lost {lost}, won {won})",
        "accepted by the oracle (VR)": percent(share(given[given >= 0] == 1)),
    }
    findings = []
    if float(likeness.median()) < 0.5 and float(noise.median()) < 15:
        findings.append(
            Finding(
                "reconstruction",
                "the generator does not reconstruct these images",
                f"median PSNR {noise.median():.1f} dB, SSIM {likeness.median():.2f}",
                "check its weights, its image size, and that it was trained on such images",
            )
        )
    elif lost - won > 0 and mcnemar(lost, won) < 0.01:
        findings.append(
            Finding(
                "reconstruction",
                "reconstruction alone costs the model accuracy, which FMR charges to the model",
                f"lost on {lost} images, won on {won}",
                "compare PA with PA_reconstruction, or choose a generator that reconstructs better",
                severity="caution",
            )
        )
    return rows, findings


WINDOW, SIGMA = 11, 1.5  # of the paper's Gaussian window
_C1, _C2 = 0.01**2, 0.03**2  # for values in [0, 1]


def psnr(first: Tensor, second: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in decibels; at most 100, where images are equal.  # (N, 3, H, W) twice → (N,)"""
    error = (first - second).square().flatten(1).mean(1)
    return -10 * error.clamp_min(1e-10).log10()


def ssim(first: Tensor, second: Tensor) -> Tensor:
    """Structural similarity: 1 for equal images. Only whole windows count.  # (N, 3, H, W) twice → (N,)"""
    window = _window(min(WINDOW, first.shape[-1], first.shape[-2]), first)
    mean_1, mean_2 = _blur(first, window), _blur(second, window)
    var_1 = _blur(first.square(), window) - mean_1.square()
    var_2 = _blur(second.square(), window) - mean_2.square()
    both = _blur(first * second, window) - mean_1 * mean_2
    light = (2 * mean_1 * mean_2 + _C1) / (mean_1.square() + mean_2.square() + _C1)
    structure = (2 * both + _C2) / (var_1 + var_2 + _C2)
    return (light * structure).flatten(1).mean(1)


def _window(size: int, like: Tensor) -> Tensor:
    places = torch.arange(size, dtype=like.dtype, device=like.device) - (size - 1) / 2
    bell = torch.exp(-places.square() / (2 * SIGMA**2))
    return bell / bell.sum()


def _blur(images: Tensor, window: Tensor) -> Tensor:
    channels = images.shape[1]
    rows = F.conv2d(images, window.expand(channels, 1, 1, -1), groups=channels)
    return F.conv2d(rows, window[:, None].expand(channels, 1, -1, 1), groups=channels)
