"""Mistakes behind the network: outputs in another order than the names, scores that are no logits, unsteady answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from counterfoil.doctor.inputs import is_convincing
from counterfoil.doctor.sample import Evidence, FewImages, Finding, compare
from counterfoil.parts.contracts import Model
from counterfoil.parts.weights import modules_of

SURE = 0.5  # mean confidence from which a model that is mostly wrong is suspected of meaning something else


def check_scores(logits: Tensor) -> list[Finding]:
    """Scores that went through a softmax before they are used as logits."""
    kind = softmax_kind(logits)
    if kind is None:
        return []
    spread = (logits.max(1).values - logits.min(1).values).max().item()
    return [
        Finding(
            "double softmax",
            f"the model gives {kind}, where logits are wanted, so that a softmax is applied twice",
            f"undoing a softmax leaves numbers in [0, 1] that add up to 1 in every row; the scores of a image never differ by "
            f"more than {spread:.2g}, so the loss hardly moves",
            "leave out the network's last softmax, or take the logarithm of its probabilities (scores: probabilities)",
        )
    ]


def softmax_kind(logits: Tensor) -> str | None:
    """Name scores that are no logits: probabilities, or the logarithm of a second softmax; None for logits."""
    values = logits.double()
    if bool((values >= -1e-6).all()) and bool(((values.sum(1) - 1).abs() < 1e-3).all()):
        return "probabilities"
    # log softmax(p) = p − log Σ exp p, where the p of a row add up to 1: that settles the constant, and the rest must fit.
    constant = (1 - values.sum(1, keepdim=True)) / values.shape[1]  # (N, 1)
    inside = values + constant
    fits = (inside.logsumexp(1, keepdim=True) - constant).abs() < 1e-3
    if bool(fits.all()) and bool((inside >= -1e-3).all()) and bool((inside <= 1 + 1e-3).all()):
        return "the logarithm of a softmax of probabilities"
    return None


def check_order(few: FewImages, logits: Tensor, classes: Sequence[str]) -> list[Finding]:
    """Outputs in another order than the names: shifted by one, in one of the usual wrong orders, or in one found here."""
    count = logits.shape[1]
    tried: list[tuple[Evidence, str, str]] = []
    for says, remedy, place in _orders(classes):
        after = place(few.truth)
        kept = (after >= 0) & (after < count)
        if kept.sum() >= 8:
            tried.append((compare(logits[kept], logits[kept], few.truth[kept], after[kept]), says, remedy))
    convinced = [one for one in tried if is_convincing(one[0], looked_at=len(tried))]
    if convinced:
        evidence, says, remedy = min(convinced, key=lambda one: one[0].loss[1])
        return [Finding("class order", says, f"with that order, {evidence}", remedy)]
    return _find_order(few, logits, classes)


def _orders(classes: Sequence[str]) -> list[tuple[str, str, Callable[[Tensor], Tensor]]]:
    count = len(classes)
    background = f" ({count} outputs: one may be a background class)" if count in (1001, 11, 101) else ""
    orders: list[tuple[str, str, Callable[[Tensor], Tensor]]] = [
        (
            f"class names are off by one: each output belongs to the name before it{background}",
            "leave the first output out (skip: 1), or put a name for it before the others",
            lambda truth: truth + 1,
        ),
        (
            f"class names are off by one: each output belongs to the name after it{background}",
            "a name stands before the first class that has no output; remove it from the list of classes",
            lambda truth: truth - 1,
        ),
        ("outputs are in the reverse order of the names", "reverse the list of classes", lambda truth: count - 1 - truth),
    ]
    by_text = sorted(range(count), key=str)
    by_name = sorted(range(count), key=lambda number: classes[number].casefold())
    for says, order in (
        ("outputs are in the order of class numbers sorted as text (0, 1, 10, 100, …)", by_text),
        ("outputs are in alphabetical order, the names are not", by_name),
    ):
        if order != list(range(count)):
            place = torch.empty(count, dtype=torch.long)
            place[torch.tensor(order)] = torch.arange(count)  # the output at which each class stands
            orders.append((says, "list the classes in the order of the outputs", _through(place)))
    return orders


def _through(place: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda truth: place.to(truth.device)[truth]


def _find_order(few: FewImages, logits: Tensor, classes: Sequence[str]) -> list[Finding]:
    """An order found on half of the images of each class and confirmed on the other half."""
    labels = few.labels.tolist()
    turn = dict.fromkeys(set(labels), 0)
    first = []
    for label in labels:
        first.append(turn[label] % 2 == 0)
        turn[label] += 1
    learn, confirm = torch.tensor(first), ~torch.tensor(first)
    shared = {label for label, times in turn.items() if times >= 2}
    confirm &= torch.tensor([label in shared for label in labels])
    if confirm.sum() < 8:
        return []
    chances = logits.softmax(1).cpu()
    known = sorted(set(few.truth.tolist()))
    table = np.zeros((len(known), logits.shape[1]))
    for row, chance, used in zip(few.truth.tolist(), chances.numpy(), learn.tolist(), strict=True):
        if used:
            table[known.index(row)] += chance
    rows, columns = linear_sum_assignment(table, maximize=True)
    place = {known[row]: int(column) for row, column in zip(rows, columns, strict=True)}
    confirm = confirm.to(logits.device)
    meant = torch.tensor([place[truth] for truth in few.truth.tolist()], device=logits.device)
    evidence = compare(logits[confirm], logits[confirm], few.truth[confirm], meant[confirm])
    moved = [truth for truth, column in place.items() if truth != column]
    if len(moved) < 2 or not is_convincing(evidence) or evidence.accuracy[1] - evidence.accuracy[0] < 0.1:
        return []
    example = moved[0]
    return [
        Finding(
            "class order",
            f"outputs are in another order than the names: what is called {classes[example]!r} comes out at "
            f"{classes[place[example]]!r}",
            f"with the order that half of the images suggest ({len(moved)} of {len(place)} classes elsewhere), the other "
            f"half: {evidence}",
            "list the classes in the order of the outputs; training folders are usually numbered in alphabetical order",
        )
    ]


def check_meaning(few: FewImages, logits: Tensor) -> list[Finding]:
    """A model that is sure of what it says and hardly ever right: it sees well and means other names."""
    right = (logits.argmax(1) == few.truth).float().mean().item()
    sure = logits.softmax(1).max(1).values.mean().item()
    if not (sure >= SURE and right < 0.2 * sure and len(few) >= 16):
        return []
    return [
        Finding(
            "class order",
            "outputs are in another order than the names, or the labels of the data are",
            f"the model is sure of itself (mean confidence {sure:.0%}) and right on {right:.1%} of {len(few)} images; "
            "a network that sees badly is unsure",
            "compare the list of classes with the one the network was trained with",
        )
    ]


TOLERANCE = 0.01  # of the spread of the logits; kernels that round differently stay far below it
_EVALUATION = "put the network into evaluation mode: module.eval(), and training=self.training in functional dropout"


def check_repeatable(model: Model, few: FewImages) -> list[Finding]:
    """Signs of a network in training mode: layers that say so, answers that change, rows that depend on each other."""
    images = few.images[:8].clone()
    with torch.no_grad():
        model.logits(images)
        if not torch.equal(images, few.images[:8]):
            return [_overwrites(float((images - few.images[:8]).abs().max()))]
        first, again = model.logits(images).float(), model.logits(images).float()
        alone = torch.cat([model.logits(images[row : row + 1]).float() for row in range(min(4, len(images)))])
    spread = first.std().clamp_min(1e-9)
    noise = float((first - again).abs().max() / spread)
    company = float((first[: len(alone)] - alone).abs().max() / spread)
    layers = _in_training(model)
    which = f" ({layers})" if layers else ""
    if noise > TOLERANCE:
        return [
            Finding(
                "training mode",
                "the model answers differently each time it is asked: dropout or another random layer is at work",
                f"the same {len(images)} images asked twice: logits differ by {noise:.1%} of their spread{which}",
                _EVALUATION,
            )
        ]
    if company > TOLERANCE:
        return [
            Finding(
                "training mode",
                "an image's logits depend on the other images of its batch: batch normalisation uses the batch's own statistics",
                f"the same image alone and among {len(images)}: logits differ by {company:.1%} of their spread{which}",
                _EVALUATION,
            )
        ]
    if layers:
        return [
            Finding(
                "training mode", "layers are in training mode, without effect so far", layers, _EVALUATION, severity="caution"
            )
        ]
    return []


def _overwrites(most: float) -> Finding:
    return Finding(
        "overwritten input",
        "the model writes into the images it is given; a run hands it copies, other callers may not",
        f"pixel values changed by up to {most:.3g}",
        "replace in-place operations on the input, such as sub_ or data.zero_(), by ones that make a new tensor",
    )


def _in_training(model: Model) -> str:
    kinds: dict[str, int] = {}
    for root in modules_of(model):
        for module in root.modules():
            if module.training and _trains(module):
                kinds[type(module).__name__] = kinds.get(type(module).__name__, 0) + 1
    return ", ".join(f"{count} × {kind} in training mode" for kind, count in kinds.items())


def _trains(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm | _DropoutNd)
