"""Fine-tunes a classifier on pictures that were made against it, mixed with the source images they were made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.parts import images, registry
from counterfoil.parts import labels as names
from counterfoil.parts.contracts import Model
from counterfoil.parts.weights import fingerprint
from counterfoil.store import Run


@dataclass(frozen=True)
class Recipe:
    """How long and how fast."""

    epochs: int = 8
    batch: int = 32
    learning_rate: float = 5e-4
    seed: int = 0


@dataclass(frozen=True)
class Tuned:
    """A fine-tuned model, and the name it goes by."""

    model: Model
    part: PartSpec


def fine_tuned(
    part: PartSpec,
    run: Run,
    *,
    recipe: Recipe,
    folder: Path,
    device: str = "cpu",
    watch: Callable[[int], None] = lambda pictures: None,
) -> Tuned:
    """`part` trained further on a run's accepted pictures and their sources; kept in `folder` and found there again."""
    model: Any = registry.create("model", part.name, part.options)
    module = model if isinstance(model, nn.Module) else getattr(model, "module", None)
    if not isinstance(module, nn.Module) or not model.differentiable:
        raise UsageError(f"augmentation: {part.name} is a {type(model).__name__} and cannot be trained here; give a torch module")
    pictures, labels = _training_set(run)
    if not len(labels):
        raise UsageError(
            f"augmentation: the oracle accepted none of the {run.path.name}'s pictures, so there is nothing to train on"
        )
    code = _code(recipe, pictures, labels, module)
    file = folder / f"{code}.safetensors"
    if file.is_file():
        module.load_state_dict(load_file(file))
        module.to(device)
    else:
        aliases = getattr(model, "aliases", None)
        columns = names.match(run.classes, model.classes, what=f"model {part.name}", aliases=aliases)
        module.to(device)
        _train(model, module, pictures, torch.tensor(columns)[labels], recipe=recipe, device=device, watch=watch)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
        save_file(state, file.with_suffix(".partial"))
        file.with_suffix(".partial").replace(file)
    return Tuned(model, PartSpec(name=f"object:{part.name.replace(':', '-')}-tuned-{code}"))


def _training_set(run: Run) -> tuple[Tensor, Tensor]:
    """Made pictures that the oracle accepted, each with its source image.  # (2n, 3, H, W) uint8, (2n,)"""
    rows: list[Tensor] = []
    labels: list[int] = []
    for trial in run.trials:
        if trial.arm == "guided" and trial.image:
            for which in ("made", "clean"):
                rows.append((images.read(run.picture(trial, which)) * 255).round().to(torch.uint8))
                labels.append(trial.label)
    empty = torch.zeros(0, 3, 1, 1, dtype=torch.uint8)
    return torch.stack(rows) if rows else empty, torch.tensor(labels, dtype=torch.long)


def _train(
    model: Model, module: nn.Module, pictures: Tensor, truth: Tensor, *, recipe: Recipe, device: str, watch: Callable[[int], None]
) -> None:
    """Plain AdamW on the cross entropy. The module stays in evaluation mode, so that batch statistics keep their values."""
    weights = [weight.requires_grad_() for weight in module.parameters() if weight.is_floating_point()]
    optimiser = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=0.01)
    order = torch.Generator().manual_seed(recipe.seed)
    steps = recipe.epochs * -(-len(truth) // recipe.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    for _ in range(recipe.epochs):
        for some in torch.randperm(len(truth), generator=order).split(recipe.batch):
            batch = pictures[some].to(device).float() / 255
            loss = F.cross_entropy(model.logits(batch), truth[some].to(device))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            schedule.step()
            watch(len(some))
    module.requires_grad_(False)


def _code(recipe: Recipe, pictures: Tensor, labels: Tensor, module: nn.Module) -> str:
    """Everything that decides the weights."""
    digest = hashlib.sha256(f"{recipe!r} {fingerprint(module)}".encode())
    digest.update(pictures.numpy().tobytes())
    digest.update(labels.numpy().tobytes())
    return digest.hexdigest()[:10]
