"""A search that starts from adversarial pictures: whether a start that already fools the model changes what FMR says.

The paper starts from pictures of the fast gradient sign method (FGSM, Goodfellow et al., 2015) with ε = 0.003. Pictures here have
eight bits, so ε acts in whole grey levels: 0.003 becomes one level, 0.0039.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Model, Sample, provenance_of, to_device
from counterfoil.parts.labels import Aliases
from counterfoil.protocols.assembly import Given, columns_of, open_data
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Check, Findings, Row, Table
from counterfoil.studies.measured import difference

_SHOWN = ("SA", "SA of the start", "VR", "PA", "FMR", "FMR_matched", "steps")


class AttackedData:
    """A data set whose pictures have taken one signed gradient step up a model's loss."""

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
        """The attacked picture.  # (3, H, W)"""
        image = self.dataset.load(sample, size)
        truth = torch.tensor([self._columns[sample.label]], device=self.device)
        return fgsm(self.model, image[None].to(self.device), truth, epsilon=self.epsilon)[0].cpu()

    def provenance(self) -> dict[str, str]:
        """What the data says of itself, and the attack."""
        return {**provenance_of(self.dataset), "attack": f"fgsm {self.epsilon:g}"}


def fgsm(model: Model, images: Tensor, truth: Tensor, *, epsilon: float) -> Tensor:
    """One step of `epsilon` in every value along the sign of the gradient of the loss.  # (N, 3, H, W), (N,)"""
    with torch.enable_grad():
        leaf = images.detach().requires_grad_()
        gradient = torch.autograd.grad(F.cross_entropy(model.logits(leaf), truth, reduction="sum"), leaf)[0]
    return (images + epsilon * gradient.sign()).clamp(0, 1)


def run(bench: Bench) -> Findings:
    """Each model from clean and from attacked pictures, both accuracies over that on the clean ones."""
    epsilon, seed = float(bench.options["epsilon"]), bench.settings.seed
    rows: list[Row] = []
    checks: list[Check] = []
    for model in bench.models:
        clean = read_outcomes(bench.run(model))
        attacked = _attacked(bench, model, epsilon)
        start = replace(attacked, clean_correct=_aligned(clean, attacked))
        for name, outcomes, own in (("clean", clean, clean), ("FGSM", start, attacked)):
            values = {**scores(outcomes, seed=seed), "SA of the start": scores(own, seed=seed)["SA"]}
            rows.append(Row((model.name, name), {each: values[each] for each in _SHOWN}))
        checks.append(_barely(model.name, clean, start, bound=float(bench.options["barely"]), seed=seed))
    return Findings(
        (Table(f"Started from clean and from FGSM pictures, ε = {epsilon:g}", ("model", "start"), tuple(rows)),), tuple(checks)
    )


def _attacked(bench: Bench, model: PartSpec, epsilon: float) -> Outcomes:
    built: Model = registry.create("model", model.name, model.options)
    if not built.differentiable:
        raise UsageError(f"fgsm-start: {model.name} has no gradients, and FGSM needs them; choose another model")
    dataset = open_data(bench.spec(model))
    device = bench.settings.device
    given = AttackedData(dataset, to_device(built, device), name=model.name, epsilon=epsilon, device=device)
    of = bench.settings.data
    named = PartSpec(name="object:fgsm", options={"of": of.name, **of.options, "model": model.name, "epsilon": epsilon})
    return read_outcomes(bench.run(model, data=named, given=Given({"dataset": given})))


def _aligned(clean: Outcomes, other: Outcomes) -> np.ndarray:
    """What the model says of the clean pictures, in the order of the other run's images."""
    known = dict(zip(clean.keys.tolist(), clean.clean_correct.tolist(), strict=True))
    return np.array([known.get(key, -2) for key in other.keys.tolist()], dtype=np.int8)


def _barely(model: str, clean: Outcomes, start: Outcomes, *, bound: float, seed: int) -> Check:
    found = difference(start, clean, seed=seed)
    claim = f"{model}: the FGSM start moves FMR by less than {bound:g} points"
    if found.value is None or found.low is None or found.high is None:
        return Check(claim, None, f"undefined: {found.note}", required=False)
    holds = True if -bound < found.low and found.high < bound else False if found.low > bound or found.high < -bound else None
    text = f"{found.value:+.1f} points ({found.low:+.1f} to {found.high:+.1f})".replace("-", "−")
    return Check(claim, holds, text, required=False)


STUDY = Study(
    name="fgsm-start",
    published="Table 7 (57.80 from clean pictures, 65.79 from FGSM's, called barely affected)",
    run=run,
    models=("lab:narrow",),
    options={"epsilon": 0.003, "barely": 10.0},
)
