"""Make images against a model, fine-tune it on them, and test it on the old images and on newly made ones.

A model that has seen such images does better on those made against its former self. What the search then finds against
the new model says how much of that is robustness. The images it is trained on come from other source images than those
it is tested on.
"""

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
from counterfoil.protocols.fmr.results import Outcomes, read_outcomes
from counterfoil.protocols.workspace import Given
from counterfoil.store import Run
from counterfoil.studies.base import Findings, Study, StudyRow, StudyTable, difference, positive
from counterfoil.studies.models import matrix
from counterfoil.studies.runs import Runs


def run(runs: Runs) -> Findings:
    """Both models on images made against either, and what training gained on old and on new images."""
    plain = runs.models[0]
    tuned = _tune(runs, plain)
    before = runs.make(plain)
    after = runs.make(tuned.part, given=Given({"model": tuned.model}))
    names = {plain.name: plain.name, tuned.part.name: f"{plain.name}, tuned"}
    scored: dict[str, dict[str, Outcomes]] = {
        names[plain.name]: {
            names[plain.name]: read_outcomes(before),
            names[tuned.part.name]: runs.score(before, tuned.part, built=tuned.model),
        },
        names[tuned.part.name]: {
            names[plain.name]: runs.score(after, plain),
            names[tuned.part.name]: read_outcomes(after),
        },
    }
    seed = runs.settings.seed
    (plain_old, tuned_old), (_, tuned_new) = (tuple(row.values()) for row in scored.values())
    gains = {
        "on old images": difference(tuned_old, plain_old, seed=seed),
        "on newly made ones": difference(tuned_new, plain_old, seed=seed),
        "old less new": difference(tuned_old, tuned_new, seed=seed),
    }
    table = StudyTable(
        "FMR gained by fine-tuning, in points, paired by source image",
        ("gain",),
        tuple(StudyRow((name,), {"FMR": each}) for name, each in gains.items()),
    )
    claims = (
        positive("fine-tuning helps on images made against the model before", gains["on old images"]),
        positive("it helps on those more than on newly made ones", gains["old less new"]),
        positive("it also helps on newly made ones (reported, not required)", gains["on newly made ones"], required=False),
    )
    return Findings((matrix(scored, "Images made against one, scored on both", seed=seed), table), claims)


def _tune(runs: Runs, plain: PartSpec) -> Tuned:
    options = runs.options
    count = int(options["training_images"])
    data = runs.settings.other_images(count, given=str(options["training_data"]), use="training_data")
    run = runs.make(plain, data=data, images=count)
    recipe = TuningRecipe(int(options["epochs"]), int(options["batch"]), float(options["learning_rate"]), runs.settings.seed)
    total = recipe.epochs * 2 * count
    with runs.counting(f"fine-tuning {plain.name}", total) as watch:
        return fine_tuned(plain, run, recipe=recipe, folder=runs.folder / "tuned", device=runs.settings.device, watch=watch)


@dataclass(frozen=True)
class TuningRecipe:
    """Length and learning rate of the training."""

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
    recipe: TuningRecipe,
    folder: Path,
    device: str = "cpu",
    watch: Callable[[int], None] = lambda pictures: None,
) -> Tuned:
    """Train `part` further on a run's accepted images and their sources; kept in `folder` and found there again."""
    model: Any = registry.create("model", part.name, part.options)
    module = model if isinstance(model, nn.Module) else getattr(model, "module", None)
    if not isinstance(module, nn.Module) or not model.differentiable:
        raise UsageError(f"augmentation: {part.name} is a {type(model).__name__} and cannot be trained here; give a torch module")
    pictures, labels = _training_set(run)
    if not len(labels):
        raise UsageError(
            f"augmentation: the oracle accepted none of the {run.path.name}'s images, so there is nothing to train on"
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
    """Generated images that the oracle accepted, each with its source image.  # (2n, 3, H, W) uint8, (2n,)"""
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
    model: Model,
    module: nn.Module,
    pictures: Tensor,
    truth: Tensor,
    *,
    recipe: TuningRecipe,
    device: str,
    watch: Callable[[int], None],
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


def _code(recipe: TuningRecipe, pictures: Tensor, labels: Tensor, module: nn.Module) -> str:
    """Everything that decides the weights."""
    digest = hashlib.sha256(f"{recipe!r} {fingerprint(module)}".encode())
    digest.update(pictures.numpy().tobytes())
    digest.update(labels.numpy().tobytes())
    return digest.hexdigest()[:10]


STUDIES = {
    "augmentation": Study(
        "augmentation",
        "Table 9",
        run,
        options={"training_data": "", "training_images": 192, "epochs": 8, "batch": 32, "learning_rate": 5e-4},
    )
}
