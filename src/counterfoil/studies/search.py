"""Studies of the search: step and budget, what a step may mean, and a start from adversarial images.

The paper's adversarial start takes images of the fast gradient sign method (FGSM, Goodfellow et al., 2015) with ε = 0.003. Images
here have eight bits, so ε acts in whole grey levels: 0.003 becomes one level, 0.0039.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.comparison import shared_keys
from counterfoil.metrics.observations import Observations
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Model, Sample, provenance_of, to_device
from counterfoil.parts.labels import Aliases
from counterfoil.protocols.reading import results_of
from counterfoil.protocols.workspace import Given, columns_of, open_data
from counterfoil.studies.base import Claim, Findings, Study, show, table
from counterfoil.studies.runs import Runs


def step_size(runs: Runs) -> Findings:
    """A table of step and budget for every model, and whether larger steps are survived less."""
    rows, claims = [], []
    steps, budgets = sorted(runs.options["steps"]), runs.options["budgets"]
    small, large = steps[0], steps[-1]
    for model in runs.models:
        found = {key: runs.search(model, search={"step": key[0], "budget": key[1]}) for key in product(steps, budgets)}
        for (step, budget), seen in found.items():
            rows.append(((model.name, f"{step:g}", str(budget)), runs.values(seen, _STEPPED)))
        claim = f"{model.name}: larger steps lower VR: fewer images survive a first step of {large:g} than one of {small:g}"
        if small == large:
            note = "one step only; give several, as in --set steps=0.03,0.1,0.3"
            claims.append(Claim(claim, None, note, required=False))
        else:
            fewer = runs.difference(found[small, budgets[-1]], found[large, budgets[-1]], "VR_first")
            claims.append(show(claim, fewer))
    return Findings((table("Step and budget", ("model", "step", "budget"), rows),), tuple(claims))


_STEPPED = ("VR_first", "FMR_moved", "VR", "PA", "FMR", "FMR_matched", "steps")


def readings(runs: Runs) -> Findings:
    """Estimate what every reading of a step comes to: its norm, its unit, the space it acts in and its length."""
    generator, options = runs.settings.generator, runs.options
    rows = []
    spaces = options["spaces"] or ("",)  # without any, the generator's own
    for model, space, norm, unit, step in product(runs.models, spaces, options["norms"], options["units"], options["steps"]):
        own = {"space": space} if space else {}
        made = runs.make(
            model,
            generator=PartSpec(name=generator.name, options={**generator.options, **own}),
            search={"norm": norm, "unit": unit, "step": step, "budget": options["budget"]},
        )
        moved = Estimate.from_dict(results_of(made)["arms"]["distance"]["guided"])
        values = {**runs.values(runs.observe(made), _READ), "moved, in latent deviations": moved}
        rows.append(((model.name, space, norm, unit, f"{step:g}"), values))
    title = f"Every reading of a step, {options['budget']} at most"
    return Findings((table(title, ("model", "space", "norm", "unit", "step"), rows),))


def controls(runs: Runs) -> Findings:
    """Compare random arms that go as far, and that take as many steps, with the guided climb of every model."""
    rows = []
    for model, control in product(runs.models, ("distance", "path")):
        made = runs.make(model, search={"control": control})
        distance = results_of(made)["arms"]["distance"]
        moved = {f"{arm}, distance": Estimate.from_dict(found) for arm, found in distance.items()}
        rows.append(((model.name, control), {**runs.values(runs.observe(made), _CONTROLLED), **moved}))
    return Findings((table("What distance alone costs, and what direction", ("model", "control"), rows),))


_CONTROLLED = ("PA_reconstruction", "PA_random", "PA", "drop_random", "FMR_random", "FMR")
_READ = ("VR", "VR_first", "PA_reconstruction", "PA", "FMR", "FMR_moved", "FMR_matched", "steps")


class AttackedData:
    """A data set whose images have taken one signed gradient step up a model's loss."""

    def __init__(self, dataset: Dataset, model: Model, *, name: str, epsilon: float, device: str = "cpu") -> None:
        self.dataset, self.model, self.epsilon, self.device = dataset, model, epsilon, device
        self.classes: Sequence[str] = dataset.classes
        self.aliases: Aliases | None = getattr(dataset, "aliases", None)
        self._columns = columns_of(model, dataset, name=name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.dataset)

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The attacked image.  # (3, H, W)"""
        image = self.dataset.load(sample, size)
        truth = torch.tensor([self._columns[sample.label]], device=self.device)
        return fgsm(self.model, image[None].to(self.device), truth, epsilon=self.epsilon)[0].cpu()

    def provenance(self) -> dict[str, str]:
        """The data's own account, and the attack."""
        return {**provenance_of(self.dataset), "attack": f"fgsm {self.epsilon:g}"}


def fgsm(model: Model, images: Tensor, truth: Tensor, *, epsilon: float) -> Tensor:
    """One step of `epsilon` in every value along the sign of the gradient of the loss.  # (N, 3, H, W), (N,)"""
    with torch.enable_grad():
        leaf = images.detach().requires_grad_()
        gradient = torch.autograd.grad(F.cross_entropy(model.logits(leaf), truth, reduction="sum"), leaf)[0]
    return (images + epsilon * gradient.sign()).clamp(0, 1)


def fgsm_start(runs: Runs) -> Findings:
    """Each model from clean and from attacked images, both accuracies over that on the clean ones."""
    epsilon, barely = runs.options["epsilon"], runs.options["barely"]
    rows, claims = [], []
    for model in runs.models:
        clean, attacked = runs.search(model), _attack(runs, model, epsilon)
        start = _over_clean(attacked, clean)
        for name, seen, own in (("clean", clean, clean), ("FGSM", start, attacked)):
            values = {**runs.values(seen, ("SA", "VR", "PA", "FMR", "FMR_matched", "steps"))}
            rows.append(((model.name, name), {**values, "SA of the start": own.estimate(runs.measures["SA"])}))
        claim = f"{model.name}: the FGSM start moves FMR by less than {barely:g} points"
        claims.append(show(claim, runs.difference(start, clean), within=barely, required=False))
    title = f"Started from clean and from FGSM images, ε = {epsilon:g}"
    return Findings((table(title, ("model", "start"), rows),), tuple(claims))


def _attack(runs: Runs, model: PartSpec, epsilon: float) -> Observations:
    built: Model = registry.create("model", model.name, model.options)
    if not built.differentiable:
        raise UsageError(f"fgsm-start: {model.name} has no gradients, and FGSM needs them; choose another model")
    device, of = runs.settings.device, runs.settings.data
    placed = to_device(built, device)
    given = AttackedData(open_data(runs.spec(model)), placed, name=model.name, epsilon=epsilon, device=device)
    named = PartSpec(name="object:fgsm", options={"of": of.name, **of.options, "model": model.name, "epsilon": epsilon})
    return runs.search(model, data=named, given=Given({"dataset": given}))


def _over_clean(attacked: Observations, clean: Observations) -> Observations:
    """The attacked run's rows with the model's answers on the clean images in the place of those on the attacked ones."""
    keys = shared_keys({"attacked": attacked, "clean": clean})
    rows, other = (each.take(np.isin(each.keys, keys)) for each in (attacked, clean))
    answers = {name: other.columns[name] for name in ("clean", "clean_right")}
    matched = rows.columns["made"] & answers["clean"]
    columns = {
        **rows.columns,
        **answers,
        "matched": matched,
        "matched_made_right": matched & rows.columns["made_right"],
        "matched_clean_right": matched & answers["clean_right"],
    }
    return replace(rows, columns=columns, estimates={})


STUDIES = (
    Study(
        "readings",
        "Tables 13 and 14, whose steps of 0.1 and 0.001 have no norm, unit or space",
        readings,
        images=32,
        options={
            "spaces": ("before", "code"),
            "norms": ("sign", "l2", "raw"),
            "units": ("scale", "absolute"),
            "steps": (0.001, 0.1),
            "budget": 50,
        },
    ),
    Study("controls", "none; the paper has no random control", controls),
    Study(
        "step-size",
        "Tables 13 and 14 (steps of 0.1 and 0.001, 50 of them at most)",
        step_size,
        options={"steps": (0.03, 0.1, 0.3, 1.0), "budgets": (1, 3, 10)},
    ),
    Study(
        "fgsm-start",
        "Table 7 (57.80 from clean images, 65.79 from FGSM's, called barely affected)",
        fgsm_start,
        options={"epsilon": 0.003, "barely": 10.0},
    ),
)
