"""Studies of the search: step and budget, and a start from adversarial images.

One search serves all its budgets: what was kept after b steps is what a budget of b would have kept. `VR, step 1` is the paper's
validation rate, the share of images whose first step the oracle accepts; `VR` is that of a plain reconstruction, which no step
can change.

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
from counterfoil.metrics.estimate import Difference, Ratio, Share, Statistic, estimate
from counterfoil.metrics.observations import NO, YES
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Model, Sample, provenance_of, to_device
from counterfoil.parts.labels import Aliases
from counterfoil.protocols.class_reader import columns_of
from counterfoil.protocols.fmr.results import Outcomes, distances, read_outcomes, scores
from counterfoil.protocols.workspace import Given, open_data
from counterfoil.studies.base import Claim, Findings, Study, StudyRow, StudyTable, difference, positive, within
from counterfoil.studies.runs import Runs

_NO_IMAGE = "no image"
_SURVIVES = Share("survives", "all", _NO_IMAGE)
_MOVED = Ratio(Share("moved_right", "survives", "no image survived a step"), Share("clean_right", "all", _NO_IMAGE), "SA is 0")


def run_step_size(runs: Runs) -> Findings:
    """A table of step and budget for every model, and whether larger steps are survived less."""
    rows: list[StudyRow] = []
    claims: list[Claim] = []
    steps = sorted(runs.options["steps"])
    for model in runs.models:
        by_step = {step: read_outcomes(runs.make(model, search={"step": step})) for step in steps}
        for step, outcomes in by_step.items():
            budgets = [b for b in runs.options["budgets"] if b < outcomes.path_correct.shape[1]]
            rows += [_step_row(model.name, step, budget, outcomes, seed=runs.settings.seed) for budget in budgets]
        claims.append(_falls(model.name, by_step, seed=runs.settings.seed))
    return Findings((StudyTable("Step and budget", ("model", "step", "budget"), tuple(rows)),), tuple(claims))


def _step_row(model: str, step: float, budget: int, outcomes: Outcomes, *, seed: int) -> StudyRow:
    shorter = at_budget(outcomes, budget)
    found = scores(shorter, seed=seed)
    values: dict[str, Estimate] = {name: found[name] for name in ("VR", "PA", "FMR", "FMR_matched", "steps")}
    statistics: dict[str, Statistic] = {"VR, step 1": _SURVIVES, "FMR if moved": _MOVED}
    return StudyRow((model, f"{step:g}", str(budget)), {**estimate(_columns(shorter), statistics, seed=seed), **values})


def at_budget(outcomes: Outcomes, budget: int) -> Outcomes:
    """Cut outcomes to those of the same search with a smaller budget."""
    made = np.where(outcomes.validated == YES, outcomes.path_correct[:, budget], outcomes.made_correct).astype(np.int8)
    return replace(outcomes, made_correct=made, steps=np.minimum(outcomes.steps, budget))


def _columns(outcomes: Outcomes) -> dict[str, np.ndarray]:
    survives = (outcomes.validated == YES) & (outcomes.steps >= 1)
    judged = outcomes.validated >= NO
    return {
        "all": judged,
        "survives": survives,
        "moved_right": survives & (outcomes.made_correct == YES),
        "clean_right": judged & (outcomes.clean_correct == YES),
    }


def _falls(model: str, by_step: dict[float, Outcomes], *, seed: int) -> Claim:
    """The smallest step against the largest, on the same images."""
    small, large = min(by_step), max(by_step)
    claim = f"{model}: larger steps lower VR: fewer images survive a first step of {large:g} than one of {small:g}"
    if small == large:
        return Claim(claim, None, "one step only; give several, as in --set steps=0.03,0.1,0.3", required=False)
    columns = {
        f"{name} {column}": values
        for name, step in (("small", small), ("large", large))
        for column, values in _columns(by_step[step]).items()
    }
    difference = Difference(_SURVIVES.with_prefix("small "), _SURVIVES.with_prefix("large "))
    return positive(claim, estimate(columns, {"difference": difference}, seed=seed)["difference"])


def run_readings(runs: Runs) -> Findings:
    """Estimate what every reading of a step comes to: its norm, its unit, the space it acts in and its length."""
    seed, generator = runs.settings.seed, runs.settings.generator
    rows: list[StudyRow] = []
    options = runs.options
    spaces = options["spaces"] or ("",)  # without any, the generator's own
    for model, space, norm, unit, step in product(runs.models, spaces, options["norms"], options["units"], options["steps"]):
        own = {"space": space} if space else {}
        made = runs.make(
            model,
            generator=PartSpec(name=generator.name, options={**generator.options, **own}),
            search={"norm": norm, "unit": unit, "step": step, "budget": int(runs.options["budget"])},
        )
        outcomes = read_outcomes(made)
        found = scores(outcomes, seed=seed)
        values = {name: found[name] for name in _READ}
        moved = {"moved, in latent deviations": distances(outcomes)["guided"]}
        rows.append(StudyRow((model.name, space, norm, unit, f"{step:g}"), {**values, **moved}))
    about = ("model", "space", "norm", "unit", "step")
    return Findings((StudyTable(f"Every reading of a step, {runs.options['budget']} at most", about, tuple(rows)),))


_READ = ("VR", "VR_first", "PA_reconstruction", "PA", "FMR", "FMR_moved", "FMR_matched", "steps")
_SHOWN = ("SA", "SA of the start", "VR", "PA", "FMR", "FMR_matched", "steps")


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


def run_fgsm_start(runs: Runs) -> Findings:
    """Each model from clean and from attacked images, both accuracies over that on the clean ones."""
    epsilon, seed = float(runs.options["epsilon"]), runs.settings.seed
    rows: list[StudyRow] = []
    claims: list[Claim] = []
    for model in runs.models:
        clean = read_outcomes(runs.make(model))
        attacked = _attack(runs, model, epsilon)
        start = replace(attacked, clean_correct=_align(clean, attacked))
        for name, outcomes, own in (("clean", clean, clean), ("FGSM", start, attacked)):
            values = {**scores(outcomes, seed=seed), "SA of the start": scores(own, seed=seed)["SA"]}
            rows.append(StudyRow((model.name, name), {each: values[each] for each in _SHOWN}))
        moved = difference(start, clean, seed=seed)
        barely = float(runs.options["barely"])
        claims.append(
            within(f"{model.name}: the FGSM start moves FMR by less than {barely:g} points", moved, barely, required=False)
        )
    return Findings(
        (StudyTable(f"Started from clean and from FGSM images, ε = {epsilon:g}", ("model", "start"), tuple(rows)),), tuple(claims)
    )


def _attack(runs: Runs, model: PartSpec, epsilon: float) -> Outcomes:
    built: Model = registry.create("model", model.name, model.options)
    if not built.differentiable:
        raise UsageError(f"fgsm-start: {model.name} has no gradients, and FGSM needs them; choose another model")
    dataset = open_data(runs.spec(model))
    device = runs.settings.device
    given = AttackedData(dataset, to_device(built, device), name=model.name, epsilon=epsilon, device=device)
    of = runs.settings.data
    named = PartSpec(name="object:fgsm", options={"of": of.name, **of.options, "model": model.name, "epsilon": epsilon})
    return read_outcomes(runs.make(model, data=named, given=Given({"dataset": given})))


def _align(clean: Outcomes, other: Outcomes) -> np.ndarray:
    """The model's answers on the clean images, in the order of the other run's images."""
    known = dict(zip(clean.keys.tolist(), clean.clean_correct.tolist(), strict=True))
    return np.array([known.get(key, -2) for key in other.keys.tolist()], dtype=np.int8)


STUDIES = {
    "readings": Study(
        "readings",
        "Tables 13 and 14, whose steps of 0.1 and 0.001 have no norm, unit or space",
        run_readings,
        images=32,
        options={
            "spaces": ("before", "code"),
            "norms": ("sign", "l2", "raw"),
            "units": ("scale", "absolute"),
            "steps": (0.001, 0.1),
            "budget": 50,
        },
    ),
    "step-size": Study(
        "step-size",
        "Tables 13 and 14 (steps of 0.1 and 0.001, 50 of them at most)",
        run_step_size,
        options={"steps": (0.03, 0.1, 0.3, 1.0), "budgets": (1, 3, 10)},
    ),
    "fgsm-start": Study(
        "fgsm-start",
        "Table 7 (57.80 from clean images, 65.79 from FGSM's, called barely affected)",
        run_fgsm_start,
        options={"epsilon": 0.003, "barely": 10.0},
    ),
}
