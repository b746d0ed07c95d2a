"""Make images against a model, fine-tune it on them, and test it on the old images and on newly made ones.

A model that has seen such images does better on those made against its former self. What the search then finds against
the new model says how much of that is robustness. The images it is trained on come from other source images than those
it is tested on. As in the paper, an image and its source are trained to give the same scores: `consistency` weighs the squared
L2 norm of their difference (Wang et al., 2020) next to the cross entropy of both.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.parts import images, labels, registry
from counterfoil.parts.contracts import Model
from counterfoil.parts.weights import fingerprint
from counterfoil.protocols.reading import Run
from counterfoil.protocols.workspace import Given
from counterfoil.studies.base import Findings, Study, show, table
from counterfoil.studies.models import matrix
from counterfoil.studies.runs import Runs

TUNING = ("epochs", "batch", "learning_rate", "consistency")


def augmentation(runs: Runs) -> Findings:
    """Both models on images made against either, and what training gained on old and on new images."""
    plain = runs.models[0]
    tuned, model = _tune(runs, plain)
    old, new = runs.make(plain), runs.make(tuned, given=Given({"model": model}))
    plain_old, tuned_old = runs.observe(old), runs.observe(old, model=tuned, built=model)
    plain_new, tuned_new = runs.observe(new, model=plain), runs.observe(new)
    names = (plain.name, f"{plain.name}, tuned")
    scored = {names[0]: dict(zip(names, (plain_old, tuned_old), strict=True)),
              names[1]: dict(zip(names, (plain_new, tuned_new), strict=True))}  # fmt: skip
    gains = {
        "on old images": runs.difference(tuned_old, plain_old),
        "on newly made ones": runs.difference(tuned_new, plain_old),
        "old less new": runs.difference(tuned_old, tuned_new),
    }
    title = "FMR gained by fine-tuning, in points, paired by source image"
    claims = (
        show("fine-tuning helps on images made against the model before", gains["on old images"]),
        show("it helps on those more than on newly made ones", gains["old less new"]),
        show("it also helps on newly made ones (reported, not required)", gains["on newly made ones"], required=False),
    )
    both = matrix(runs, scored, "Images made against one, scored on both")
    return Findings((both, table(title, ("gain",), [((name,), {"FMR": each}) for name, each in gains.items()])), claims)


def _tune(runs: Runs, plain: PartSpec) -> tuple[PartSpec, Model]:
    """Train a model further on images made against it; the weights are kept in `tuned` and found there again."""
    options, device = runs.options, runs.settings.device
    count = options["training_images"]
    run = runs.make(
        plain, images=count, data=runs.settings.other_images(count, given=options["training_data"], use="training_data")
    )
    model: Any = registry.create("model", plain.name, plain.options)
    module = model if isinstance(model, nn.Module) else getattr(model, "module", None)
    if not isinstance(module, nn.Module) or not model.differentiable:
        raise UsageError(
            f"augmentation: {plain.name} is a {type(model).__name__} and cannot be trained here; give a torch module"
        )
    recipe = f"{ {name: options[name] for name in TUNING} } {runs.seed} {run.path.name} {fingerprint(module)}"
    code = hashlib.sha256(recipe.encode()).hexdigest()[:10]
    file = runs.folder / "tuned" / f"{code}.safetensors"
    module.to(device)
    if file.is_file():
        module.load_state_dict(load_file(file))
    else:
        aliases = getattr(model, "aliases", None)
        columns = torch.tensor(labels.match(run.classes, model.classes, what=f"model {plain.name}", aliases=aliases))
        made, clean, truth = _pairs(run)
        with runs.counting(f"fine-tuning {plain.name}", options["epochs"] * len(truth)) as watch:
            fine_tune(model, module, made, clean, columns[truth], options=options, seed=runs.seed, device=device, watch=watch)
        _save(module, file)
    return PartSpec(name=f"object:{plain.name.replace(':', '-')}-tuned-{code}"), model


def _pairs(run: Run) -> tuple[Tensor, Tensor, Tensor]:
    """Generated images that the oracle accepted, their source images, and the labels.  # (n, 3, H, W) uint8 twice, (n,)"""
    kept = [trial for trial in run.trials if trial.arm == "guided" and trial.image]
    if not kept:
        raise UsageError(
            f"augmentation: the oracle accepted none of the images of {run.path.name}, so there is nothing to train on"
        )
    made, clean = (
        torch.stack([(images.read(run.picture(trial, which)) * 255).round().to(torch.uint8) for trial in kept])
        for which in ("made", "clean")
    )
    return made, clean, torch.tensor([trial.label for trial in kept])


def fine_tune(
    model: Model,
    module: nn.Module,
    made: Tensor,
    clean: Tensor,
    truth: Tensor,
    *,
    options: Any,
    seed: int,
    device: str,
    watch: Any,
) -> None:
    """AdamW on the cross entropy of both images and their consistency; batch statistics keep their values."""
    weights = [weight.requires_grad_() for weight in module.parameters() if weight.is_floating_point()]
    optimiser = torch.optim.AdamW(weights, lr=options["learning_rate"], weight_decay=0.01)
    order = torch.Generator().manual_seed(seed)
    steps = options["epochs"] * -(-len(truth) // options["batch"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    for _ in range(options["epochs"]):
        for some in torch.randperm(len(truth), generator=order).split(options["batch"]):
            batch = torch.cat([made[some], clean[some]]).to(device).float() / 255
            logits = model.logits(batch)  # (2n, K)
            scores = logits.chunk(2)
            loss = F.cross_entropy(logits, truth[some].repeat(2).to(device))
            loss = loss + options["consistency"] * (scores[0] - scores[1]).square().sum(1).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            schedule.step()
            watch(len(some))
    module.requires_grad_(False)


def _save(module: nn.Module, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    save_file(state, file.with_suffix(".partial"))
    file.with_suffix(".partial").replace(file)


STUDIES = (
    Study(
        "augmentation",
        "Table 9",
        augmentation,
        options={
            "training_data": "",
            "training_images": 192,
            "epochs": 8,
            "batch": 32,
            "learning_rate": 5e-4,
            "consistency": 0.1,
        },
    ),
)
