"""The set-up under examination, a few of its images, and what a finding and its evidence are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.stats import binomtest, wilcoxon
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import BadData, BadImage, BadSpec
from counterfoil.core.naming import image_seed
from counterfoil.core.records import Estimate
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.metrics.estimate import Share, estimate
from counterfoil.metrics.tables import p_is
from counterfoil.parts import calls, registry
from counterfoil.parts.contracts import Generator, Model, Oracle, to_device
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.protocols.workspace import Given, Workspace, columns_of, device_of, open_data

TEMPERATURES = torch.logspace(-2.5, 1.5, 49)
Severity = Literal["mistake", "caution"]
"""`mistake`: the set-up is most likely wrong. `caution`: it works, and there is something to know."""


@dataclass(frozen=True)
class Finding:
    """Something that is probably wrong, with the evidence for it and what to do."""

    mistake: str  # a short name, such as "channel order"
    says: str
    evidence: str
    remedy: str
    severity: Severity = "mistake"


@dataclass(frozen=True)
class SetUp:
    """A model with its data and, where the protocol has them, an oracle and a generator."""

    spec: Any
    name: str  # of the model
    model: Model
    dataset: ImageSet
    columns: list[int]  # the model's output for each of the data's classes
    size: int | None
    oracle: Oracle | None = None
    assembly: Workspace[Any] | None = None  # of a protocol with a generator

    @property
    def generator(self) -> Generator | None:
        """The generator, if there is one."""
        return None if self.assembly is None else self.assembly.generator


def set_ups(spec: Any, given: Given | None = None) -> list[SetUp]:
    """The models of a specification, each with the parts that judge or change its images."""
    if hasattr(spec, "generator"):
        parts = protocols.get(spec.protocol).workspace(spec, given)
        return [SetUp(spec, spec.model.name, parts.model, parts.dataset, parts.columns, parts.size, parts.oracle, parts)]
    if getattr(spec, "data", None) is None:
        raise BadSpec(f"{spec.protocol}: the doctor needs labelled images to try the models on; name some with --data")
    device, objects = device_of(spec.device), given.parts if given else {}

    def part(role: str, named: Any) -> Any:
        return to_device(objects[role] if role in objects else registry.create(role, named.name, named.options), device)

    dataset = open_data(spec, given)
    named = getattr(spec, "oracle", None)
    oracle = calls.bind(part("oracle", named), dataset.classes, part=f"oracle {named.name}") if named is not None else None
    first, several = getattr(spec, "model", None), ("others", "surrogates", "models")
    models = [("model", first)] if first is not None else []
    models += [("", each) for role in several for each in getattr(spec, role, ())]
    if not models:
        raise BadSpec(f"{spec.protocol}: there is no model to examine; name one")
    found = []
    for role, each in models:
        model = part("model", each) if role else to_device(registry.create("model", each.name, each.options), device)
        size = spec.size or getattr(model, "size", None)
        found.append(SetUp(spec, each.name, model, dataset, columns_of(model, dataset, name=each.name), size, oracle))
    return found


@dataclass(frozen=True)
class FewImages:
    """Some of the data's images."""

    images: Tensor  # (N, 3, H, W)
    labels: Tensor  # (N,) int64, in the data's classes
    truth: Tensor  # (N,) int64, in the model's outputs
    seeds: Tensor  # (N,) int64
    ids: NDArray[np.object_]
    unreadable: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def rows(self, which: Tensor | slice) -> FewImages:
        """Some of them."""
        ids = self.ids[which.cpu().numpy() if isinstance(which, Tensor) else which]
        return FewImages(self.images[which], self.labels[which], self.truth[which], self.seeds[which], ids, self.unreadable)

    def batches(self) -> Iterator[FewImages]:
        """All of them, a few at a time."""
        rows = _rows_of(self.images)
        return (self.rows(slice(at, at + rows)) for at in range(0, len(self), rows))


def read_few(setup: SetUp | Workspace[Any], count: int) -> FewImages:
    """Read up to `count` images, taken evenly over the data."""
    images, labels, seeds, ids, bad = [], [], [], [], []
    spec = setup.spec
    for sample in setup.dataset.limit(count=count):
        try:
            images.append((setup.dataset.load(sample, setup.size) * 255).round() / 255)
        except BadImage as problem:
            bad.append(str(problem))
            continue
        labels.append(sample.label)
        seeds.append(image_seed(spec.seed, sample.image_id))
        ids.append(sample.image_id)
    if not images:
        raise BadData(f"{spec.data.name}: none of {len(bad)} images tried can be read; the first: {bad[0]}")
    if len({image.shape for image in images}) > 1:
        raise BadData(f"{spec.data.name}: images of several sizes; give one with --size")
    chosen = torch.tensor(labels, device=spec.device)
    truth = torch.tensor(setup.columns, device=spec.device)[chosen]
    seeded = torch.tensor(seeds, device=spec.device)
    return FewImages(torch.stack(images).to(spec.device), chosen, truth, seeded, np.array(ids, dtype=object), tuple(bad))


def ask_in_batches(answer: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The answers about many images, asked for a few at a time, without gradients."""
    with torch.no_grad():
        return torch.cat([answer(part).float() for part in images.split(_rows_of(images))])


def judge(oracle: Oracle, images: Tensor, labels: Tensor, ids: NDArray[np.object_], classes: int) -> tuple[Tensor, Tensor]:
    """Verdicts on many images (1 accepted, 0 rejected, -1 abstains) and the class that the oracle sees.  # → (N,), (N,)

    `ids` name the images that these are or were made from: an oracle fitted on them judges each by a head that has not seen it.
    """
    given, rows = [], _rows_of(images)
    with torch.no_grad():
        for at in range(0, len(images), rows):
            part = slice(at, at + rows)
            given += calls.judge(oracle, images[part].clone(), labels[part], classes, part="the oracle", sources=list(ids[part]))
    keeps = torch.tensor([-1 if keeps is None else int(keeps) for keeps, _, _ in given], device=images.device)
    return keeps, torch.tensor([seen for _, _, seen in given], device=images.device)


def _rows_of(images: Tensor) -> int:
    """Images of a batch."""
    return CPU_BATCH if images.device.type == "cpu" else 64


def share(right: Tensor) -> Estimate:
    """The per cent of images for which something holds, with its interval."""
    columns = {"right": right.cpu().numpy().astype(np.int64), "all": np.ones(len(right), np.int64)}
    return estimate(columns, {"share": Share("right", "all")})["share"]


def percent(found: Estimate) -> str:
    """An estimate as people read it."""
    if found.value is None:
        return f"– ({found.note})"
    return f"{found.value:.1f} % ({found.low:.1f} to {found.high:.1f}, n = {found.n})"


@dataclass(frozen=True)
class Evidence:
    """A model as it is against the same model with one thing changed, on the same images.

    Accuracy alone is blunt: a wrong normalisation costs a good model a few points, which few images cannot show. The loss of
    the true class is sharper, but it also falls when a model merely becomes less sure of itself. So losses are compared after
    each variant has been given the temperature that suits it best; what is left is whether it knows better.
    """

    accuracy: tuple[float, float]  # before and after
    loss: tuple[float, float]  # mean, at the temperature that suits each best
    p_value: float  # that the losses fell by chance alone
    images: int
    gained: int  # images that are right after and were wrong before
    lost: int  # the other way round

    @property
    def chance_of_gain(self) -> float:
        """The probability of gaining so many images, or more, where each that changes is as likely to be lost (McNemar)."""
        changed = self.gained + self.lost
        return float(binomtest(self.gained, changed, alternative="greater").pvalue) if changed else 1.0

    @property
    def relief(self) -> float:
        """The share of the loss that the change takes away."""
        return 1 - self.loss[1] / max(self.loss[0], 1e-9)

    def __str__(self) -> str:
        (before, after), (loss, now) = self.accuracy, self.loss
        text = f"accuracy {before:.1%} → {after:.1%}, calibrated loss {loss:.2f} → {now:.2f}"
        return f"{text} on {self.images} images, {p_is(self.p_value)}"


def compare(before: Tensor, after: Tensor, truth: Tensor, truth_after: Tensor | None = None) -> Evidence:
    """Evidence from the logits before and after; `truth_after` if the change is one of the outputs' order."""
    meant = truth if truth_after is None else truth_after
    first, second = _by_temperature(before, truth), _by_temperature(after, meant)  # (temperatures, N)
    # Compared at the temperature that suits each, and at one that suits both: where most images are easy, a variant that is
    # a trifle surer of those would else outvote the few that matter. Two tests, so the smaller p-value counts double.
    common = (first + second).mean(1).argmin()
    each = first[first.mean(1).argmin()] - second[second.mean(1).argmin()]
    p_value = min(1.0, 2 * min(_falls(each), _falls(first[common] - second[common])))
    right, right_after = before.argmax(1) == truth, after.argmax(1) == meant
    return Evidence(
        accuracy=(float(right.float().mean()), float(right_after.float().mean())),
        loss=(float(first.mean(1).min()), float(second.mean(1).min())),
        p_value=p_value,
        images=len(truth),
        gained=int((right_after & ~right).sum()),
        lost=int((right & ~right_after).sum()),
    )


def calibrated_loss(logits: Tensor, truth: Tensor) -> Tensor:
    """The loss of each image at the temperature with the lowest mean.  # (N, K), (N,) → (N,)"""
    losses = _by_temperature(logits, truth)
    return losses[losses.mean(1).argmin()]


def _falls(differences: Tensor) -> float:
    """The chance of such differences, or greater ones, if losses rose as easily as they fell."""
    values = differences.cpu().numpy()
    values = values[np.abs(values) > 1e-12]
    return float(wilcoxon(values, alternative="greater").pvalue) if len(values) else 1.0


def _by_temperature(logits: Tensor, truth: Tensor) -> Tensor:
    """The loss of each image at every temperature.  # → (temperatures, N)"""
    logits = logits.double()
    losses = torch.stack([F.cross_entropy(logits * float(factor), truth, reduction="none") for factor in TEMPERATURES])
    return losses.nan_to_num(nan=1e6, posinf=1e6)
