"""Attack the oracle itself: signed gradient steps on its input towards a class that the image does not show.

The search never sees the oracle's gradient, so this is not what happens in a run; it bounds what could. `fgsm` takes one
step of the whole radius, `pgd` many small ones inside it (Madry et al., 2018).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from counterfoil.core.errors import RunFailed, UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.estimate import Mean, Share, Statistic, estimate
from counterfoil.parts import calls, registry
from counterfoil.parts.contracts import Dataset, to_device
from counterfoil.parts.oracles.scoring import ScoringOracle
from counterfoil.protocols.workspace import open_data
from counterfoil.studies.base import Claim, Findings, Study, StudyRow, StudyTable
from counterfoil.studies.runs import Runs

BATCH = 8
_TINY = torch.finfo(torch.float32).tiny  # a larger floor would leave a confident oracle without a gradient
_STATISTICS: dict[str, Statistic] = {
    "target loss": Mean("loss", "all"),
    "p(true)": Mean("true", "all", most=1),
    "p(target)": Mean("target", "all", most=1),
    "accepts the label %": Share("accepts", "all"),
    "sees the target %": Share("sees_target", "all"),
}

Reading = dict[str, list[float]]


def run(runs: Runs) -> Findings:
    """Both attacks on every oracle, and how the oracles take them."""
    options = runs.options
    own = runs.settings.oracle
    oracles = [own, *(PartSpec(name=name) for name in options["oracles"] if name != own.name)]
    dataset = open_data(runs.spec(runs.models[0]))
    rows: list[StudyRow] = []
    last: dict[str, dict[str, Estimate]] = {}
    for oracle in oracles:
        readings = _readings(runs, oracle, dataset)
        for (attack, step), reading in readings.items():
            values = estimate(
                {name: torch.tensor(each).numpy() for name, each in reading.items()}, _STATISTICS, seed=runs.settings.seed
            )
            rows.append(StudyRow((oracle.name, attack, str(step)), values))
            last[oracle.name] = values
    title = f"Towards the next class, radius {options['epsilon']:g}"
    return Findings(
        (StudyTable(title, ("oracle", "attack", "steps"), tuple(rows)),),
        tuple(_claim_pushed(name, each) for name, each in last.items()),
    )


def _claim_pushed(name: str, values: dict[str, Estimate]) -> Claim:
    found = values["accepts the label %"]
    seen = values["sees the target %"].value
    text = f"{found.value:.1f} % ({found.low:.1f} to {found.high:.1f}) still accepted, {seen:.1f} % seen as the target"
    return Claim(f"{name}: withstands the longest attack on half of the images or more", _above(found, 50), text, required=False)


def _above(found: Estimate, bar: float) -> bool | None:
    if found.low is None or found.high is None:
        return None
    return True if found.low >= bar else False if found.high < bar else None


def _readings(runs: Runs, asked: PartSpec, dataset: Dataset) -> dict[tuple[str, int], Reading]:
    created = to_device(registry.create("oracle", asked.name, asked.options), runs.settings.device)
    oracle = calls.bind(created, dataset.classes, part=f"oracle {asked.name}")
    if not isinstance(oracle, ScoringOracle):
        raise UsageError(f"oracle-attack: {asked.name} gives no probabilities to climb; attack one that does, such as clip:")
    options, device = runs.options, runs.settings.device
    wanted = sorted({int(step) for step in options["steps"]})
    readings: dict[tuple[str, int], Reading] = {}
    size = int(options["size"]) or None
    with runs.counting(f"attacking {asked.name}", len(dataset)) as watch:
        for images, labels in _batches(dataset, size, device):
            targets = (labels + 1) % len(dataset.classes)
            _read(readings, ("none", 0), oracle, images, labels, targets)
            epsilon = float(options["epsilon"])
            _read(readings, ("fgsm", 1), oracle, _step(oracle, images, images, targets, epsilon, epsilon), labels, targets)
            moved = images
            for step in range(1, max(wanted, default=0) + 1):
                moved = _step(oracle, moved, images, targets, float(options["step"]), epsilon)
                if step in wanted:
                    _read(readings, ("pgd", step), oracle, moved, labels, targets)
            watch(len(labels))
    return readings


def _step(oracle: ScoringOracle, images: Tensor, source: Tensor, targets: Tensor, step: float, epsilon: float) -> Tensor:
    """One signed step towards the targets, back into the ball around the source and into [0, 1]."""
    leaf = images.detach().requires_grad_()
    chance = oracle.probabilities(leaf).gather(1, targets[:, None])
    if not chance.requires_grad:
        raise UsageError("oracle-attack: the oracle's probabilities have no gradient; attack one that is differentiable")
    gradient = torch.autograd.grad(chance.clamp_min(_TINY).log().sum(), leaf)[0]
    moved = leaf.detach() + step * gradient.sign()
    return moved.clamp(source - epsilon, source + epsilon).clamp(0, 1)


@torch.no_grad()
def _read(
    readings: dict[tuple[str, int], Reading],
    key: tuple[str, int],
    oracle: ScoringOracle,
    images: Tensor,
    labels: Tensor,
    targets: Tensor,
) -> None:
    chance = oracle.probabilities(images)  # (N, K)
    said = calls.verdicts_of(oracle.judge, images, labels)
    if not said.isfinite().all():
        raise RunFailed(calls.NOT_FINITE)
    target = chance.gather(1, targets[:, None])[:, 0]
    columns = {
        "all": torch.ones(len(labels)),
        "loss": -target.clamp_min(_TINY).log(),
        "true": chance.gather(1, labels[:, None])[:, 0],
        "target": target,
        "accepts": (said[:, 0] == 1).float(),
        "sees_target": (said[:, 2] == targets).float(),
    }
    for name, column in columns.items():
        readings.setdefault(key, {}).setdefault(name, []).extend(column.tolist())


def _batches(dataset: Dataset, size: int | None, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    samples = iter(dataset)
    while some := list(islice(samples, BATCH)):
        images = [dataset.load(sample, size) for sample in some]
        if len({image.shape for image in images}) > 1:
            raise UsageError("oracle-attack: the images have different sizes; bring them to one, as in --set size=224")
        yield torch.stack(images).to(device), torch.tensor([sample.label for sample in some], device=device)


STUDIES = {
    "oracle-attack": Study(
        "oracle-attack",
        "Table 15 (CLIP against a robust XCiT-L12)",
        run,
        images=64,
        options={"oracles": (), "steps": (1, 5, 20), "step": 1 / 255, "epsilon": 8 / 255, "size": 0},
    )
}
