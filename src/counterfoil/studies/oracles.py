"""Studies of the oracle: another one in the loop and on the same images, and attacks on the oracle itself.

The oracle ends a climb when it no longer sees the class. A class that it gives up early keeps only images that hardly
changed, and so looks robust: the paper's primates (Table 13). `oracles` sets each class's FMR against how often the oracle
stopped it, warns where the two go together, and gives FMR with classes weighted as in the source images, FMR over the
climbs that no oracle stopped, and the bounds from the oracle's audit.

The search never sees the oracle's gradient, so `oracle-attack` is not what happens in a run; it bounds what could. `fgsm` takes
one step of the whole radius, `pgd` many small ones inside it (Madry et al., 2018).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, permutations
from typing import Self

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import RunFailed, UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec, as_part
from counterfoil.metrics.comparison import order_agreement
from counterfoil.metrics.estimate import (
    Floats,
    Mean,
    Ratio,
    Resamples,
    Share,
    Statistic,
    Sums,
    divide,
    estimate,
    estimate_one,
    few_to_divide_by,
)
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.metrics.tables import estimate_text
from counterfoil.parts import calls, registry
from counterfoil.parts.contracts import Dataset, to_device
from counterfoil.parts.oracles.scoring import ScoringOracle
from counterfoil.protocols.reading import Run, results_of
from counterfoil.protocols.workspace import open_data
from counterfoil.studies.base import Claim, Findings, Study, gap, show, table
from counterfoil.studies.runs import Runs

BATCH = 8
_TINY = torch.finfo(torch.float32).tiny  # a larger floor would leave a confident oracle without a gradient


def oracles(runs: Runs) -> Findings:
    """Every model under every oracle, the oracles on each other's images, and the classes."""
    asked = _oracles(runs)
    made = {(oracle.name, model.name): runs.make(model, oracle=oracle) for oracle in asked for model in runs.models}
    fmr, stopped = runs.measures["FMR"], runs.measures["stopped"]
    loops, fixes, classes, claims = [], [], [], []
    for key, run in made.items():
        seen = runs.observe(run)
        loops.append((key, runs.values(seen)))
        audit = results_of(run)["audit"]
        bounds = {name: Estimate.from_dict(audit[name]) for name in ("lost", "FMR_lost", "FMR_kept")}
        corrected = {"FMR_by_class": by_class_weights(seen, fmr), **runs.values(seen, ("FMR_unstopped",))}
        fixes.append((key, {**runs.values(seen, ("FMR",)), **corrected, **bounds}))
        groups = seen.groups["class"]
        for name in np.unique(groups):
            classes.append(((*key, str(name)), runs.values(seen.take(groups == name), ("stopped", "FMR"))))
        claims.append(_warning(*key, rejection_bias(seen, stopped, fmr)))
    judged = [
        ((one.name, other.name, model.name), _agreement(runs, made[one.name, model.name], other))
        for one, other in permutations(asked, 2)
        for model in runs.models
    ]
    tables = (
        table("Each oracle in the loop", ("oracle", "model"), loops),
        table("The images of one oracle's runs, judged by another", ("made under", "judged by", "model"), judged),
        table("By class: climbs the oracle stopped, and FMR", ("oracle", "model", "class"), classes),
        table("FMR, corrected and bounded", ("oracle", "model"), fixes),
    )
    return Findings(tables if judged else (tables[0], *tables[2:]), tuple(claims))


def _oracles(runs: Runs) -> list[PartSpec]:
    """The settings' oracle and the further ones."""
    own = runs.settings.oracle
    further = [PartSpec.model_validate(as_part(each)) for each in runs.options["oracles"]]
    return [own, *(each for each in further if each.name != own.name)]


def rejection_bias(seen: Observations, stopped: Measure, kept: Measure) -> Estimate:
    """Kendall's tau over classes between how often the oracle stopped a class and its FMR; above 0 they go together."""
    groups = seen.groups["class"]
    names = [str(name) for name in np.unique(groups)]
    if len(names) < 2:
        return Estimate(None, None, None, len(names), "one class has nothing to be compared with" if names else "no image")
    columns = {f"{name} {column}": values * (groups == name) for name in names for column, values in seen.columns.items()}
    orders = ([each.statistic.with_prefix(f"{name} ") for name in names] for each in (stopped, kept))
    found = order_agreement(Resamples(columns, clusters=seen.cluster, seed=seen.seed), *orders)
    return replace(found, note=found.note.replace("models", "classes"))


@dataclass(frozen=True)
class Standardised(Statistic):
    """PA over SA with every class weighted as among the source images; both weights and accuracies are resampled."""

    parts: tuple[Ratio, ...] = ()

    def of(self, sums: Sums) -> Floats:
        above, below = np.zeros(1), np.zeros(1)
        for each in self.parts:
            weight = sums[each.below.whole]
            above, below = above + weight * each.above.of(sums), below + weight * each.below.of(sums)
        return 100 * divide(above, below)

    def count(self, sums: Sums) -> int:
        return sum(each.count(sums) for each in self.parts)

    def reason(self, sums: Sums) -> str:
        right = sum(float(sums[each.below.part][0]) for each in self.parts)
        return "" if right else "no class has both an accepted image and one that was right"

    def too_few(self, clusters: Mapping[str, int]) -> str:
        return few_to_divide_by(self._images(clusters), sum(clusters[each.below.part] for each in self.parts))

    def rests_on(self, clusters: Mapping[str, int]) -> int:
        return self._images(clusters) - len(self.parts) + 1  # a mean per class is taken from them

    def with_prefix(self, prefix: str) -> Self:
        return replace(self, parts=tuple(each.with_prefix(prefix) for each in self.parts))

    def _images(self, clusters: Mapping[str, int]) -> int:
        return min(sum(clusters[getattr(each, side).whole] for each in self.parts) for side in ("above", "below"))


def by_class_weights(seen: Observations, fmr: Measure) -> Estimate:
    """FMR with classes weighted as in the source images."""
    groups, ratio = seen.groups["class"], fmr.statistic
    assert isinstance(ratio, Ratio)
    every = [str(name) for name in np.unique(groups)]
    # A class without an accepted image has no PA to stand for.
    names = [name for name in every if seen.columns[ratio.above.whole][groups == name].any()]
    used = {column for term in ratio.terms for column in (term.part, term.whole)}
    columns = {f"{name} {column}": seen.columns[column] * (groups == name) for name in names for column in sorted(used)}
    if not names:
        return Estimate(None, None, None, 0, "no class has both an accepted image and one that was right")
    statistic = Standardised(tuple(ratio.with_prefix(f"{name} ") for name in names))
    found = estimate_one(Resamples(columns, clusters=seen.cluster, seed=seen.seed), statistic)
    left_out = len(every) - len(names)
    note = f"{left_out} of {len(every)} classes have no accepted image and are left out" if left_out else ""
    return replace(found, note="; ".join(filter(None, (found.note, note))))


def _agreement(runs: Runs, run: Run, other: PartSpec) -> dict[str, Estimate]:
    """Estimate how often another oracle agrees with the run's own, and FMR according to either."""
    own, its = runs.observe(run), runs.observe(run, oracle=other)
    one, two = own.columns, its.columns
    made, clean = one["accepted"] & two["judged"], one["oracle_asked"] & two["oracle_asked"]
    columns = {
        "made": made,
        "made_same": made & two["accepted"],
        "clean": clean,
        "clean_same": clean & (one["oracle_right"] == two["oracle_right"]),
    }
    none = "no image that both judged"
    statistics = {
        "agree on made": Share("made_same", "made", none),
        "agree on source images": Share("clean_same", "clean", none),
    }
    fmr = runs.measures["FMR"]
    found = estimate(columns, statistics, seed=runs.seed)
    return {**found, "FMR by the first": own.estimate(fmr), "FMR by the second": its.estimate(fmr)}


def _warning(oracle: str, model: str, tau: Estimate) -> Claim:
    """Claim that FMR of this model is not the oracle's doing."""
    claim = f"{model} under {oracle}: classes that the oracle stops more do not look easier"
    if tau.value is None:
        return Claim(claim, None, f"undefined: {tau.note}", required=False)
    opposed = show(claim, gap(Estimate(0, 0, 0, tau.n), tau), required=False)
    advice = "; read the corrected FMR" if tau.value > 0 else ""
    return replace(opposed, evidence=f"Kendall's tau {estimate_text(tau, digits=2)} over {tau.n} classes{advice}")


_READ: dict[str, Statistic] = {
    "target loss": Mean("loss", "all"),
    "p(true)": Mean("true", "all", most=1),
    "p(target)": Mean("target", "all", most=1),
    "accepts the label %": Share("accepts", "all"),
    "sees the target %": Share("sees_target", "all"),
}


def oracle_attack(runs: Runs) -> Findings:
    """Both attacks on every oracle, towards the next class, and how the oracles take them."""
    dataset = open_data(runs.spec(runs.models[0]))
    rows, claims = [], []
    for part in _oracles(runs):
        found = [(key, estimate(columns, _READ, seed=runs.seed)) for key, columns in _attack(runs, part, dataset).items()]
        rows += [((part.name, attack, str(step)), values) for (attack, step), values in found]
        accepted = found[-1][1]["accepts the label %"]
        claim = f"{part.name}: withstands the longest attack on half of the images or more"
        claims.append(show(claim, accepted, above=50, required=False, unit=" % still accepted", signed=False))
    title = f"Towards the next class, radius {runs.options['epsilon']:g}"
    return Findings((table(title, ("oracle", "attack", "steps"), rows),), tuple(claims))


def _attack(runs: Runs, asked: PartSpec, dataset: Dataset) -> dict[tuple[str, int], dict[str, Floats]]:
    """By attack and steps, what the oracle says of the attacked images, a row each."""
    options, device = runs.options, runs.settings.device
    created = to_device(registry.create("oracle", asked.name, asked.options), device)
    oracle = calls.bind(created, dataset.classes, part=f"oracle {asked.name}")
    if not isinstance(oracle, ScoringOracle):
        raise UsageError(f"oracle-attack: {asked.name} gives no probabilities to climb; attack one that does, such as clip:")
    read: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
    longest, epsilon = max(options["steps"], default=0), options["epsilon"]
    with runs.counting(f"attacks on {asked.name}", len(dataset)) as watch:
        for images, labels in _batches(dataset, options["size"] or None, device):
            targets = (labels + 1) % len(dataset.classes)
            move = partial(step_towards, oracle, source=images, targets=targets, epsilon=epsilon)
            read["none", 0].append(_read(oracle, images, labels, targets))
            read["fgsm", 1].append(_read(oracle, move(images, step=epsilon), labels, targets))
            moved = images
            for step in range(1, longest + 1):
                moved = move(moved, step=options["step"])
                if step in options["steps"]:
                    read["pgd", step].append(_read(oracle, moved, labels, targets))
            watch(len(labels))
    names = ("all", "loss", "true", "target", "accepts", "sees_target")
    return {key: dict(zip(names, torch.cat(each, dim=1).double().numpy(), strict=True)) for key, each in read.items()}


def step_towards(
    oracle: ScoringOracle, images: Tensor, *, source: Tensor, targets: Tensor, step: float, epsilon: float
) -> Tensor:
    """One signed step towards the targets, back into the ball around the source and into [0, 1]."""
    leaf = images.detach().requires_grad_()
    chance = oracle.probabilities(leaf).gather(1, targets[:, None])
    if not chance.requires_grad:
        raise UsageError("oracle-attack: the oracle's probabilities have no gradient; attack one that is differentiable")
    gradient = torch.autograd.grad(chance.clamp_min(_TINY).log().sum(), leaf)[0]
    moved = leaf.detach() + step * gradient.sign()
    return moved.clamp(source - epsilon, source + epsilon).clamp(0, 1)


@torch.no_grad()
def _read(oracle: ScoringOracle, images: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """Ones, and what the oracle says of the images.  # (6, N)"""
    chance = oracle.probabilities(images)  # (N, K)
    said = calls.verdicts_of(oracle.judge, images, labels)
    if not said.isfinite().all():
        raise RunFailed(calls.NOT_FINITE)
    true, target = (chance.gather(1, each[:, None])[:, 0] for each in (labels, targets))
    loss = -target.clamp_min(_TINY).log()
    return torch.stack([torch.ones_like(true), loss, true, target, said[:, 0] == 1, said[:, 2] == targets]).cpu()


def _batches(dataset: Dataset, size: int | None, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    samples = iter(dataset)
    while some := list(islice(samples, BATCH)):
        images = [dataset.load(sample, size) for sample in some]
        if len({image.shape for image in images}) > 1:
            raise UsageError("oracle-attack: the images have different sizes; bring them to one, as in --set size=224")
        yield torch.stack(images).to(device), torch.tensor([sample.label for sample in some], device=device)


STUDIES = (
    Study(
        "oracles",
        "Table 13's primates, and section 5's discussion of the oracle; the paper swaps none",
        oracles,
        options={"oracles": ()},
    ),
    Study(
        "oracle-attack",
        "Table 15 (CLIP against a robust XCiT-L12)",
        oracle_attack,
        images=64,
        options={"oracles": (), "steps": (20, 40, 60, 80), "step": 1 / 255, "epsilon": 8 / 255, "size": 0},
    ),
)
