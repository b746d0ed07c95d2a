"""Mistakes behind the network: outputs in another order than the names, scores that are no logits, unsteady answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
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
    says = f"the model gives {kind}, where logits are wanted, so that a softmax is applied twice"
    evidence = "undoing a softmax leaves numbers in [0, 1] that add up to 1 in every row; the scores of an image never differ by"
    remedy = "leave out the network's last softmax, or take the logarithm of its probabilities (scores: probabilities)"
    return [Finding("double softmax", says, f"{evidence} more than {spread:.2g}, so the loss hardly moves", remedy)]


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
    """The usual wrong orders: what to say, what to do, and the output that each class has in that order."""
    count = len(classes)
    background = f" ({count} outputs: one may be a background class)" if count in (1001, 11, 101) else ""
    by_one = "class names are off by one: each output belongs to the name"
    leave = "leave the first output out (skip: 1), or put a name for it before the others"
    remove = "a name stands before the first class that has no output; remove it from the list of classes"
    orders: list[tuple[str, str, Callable[[Tensor], Tensor]]] = [
        (f"{by_one} before it{background}", leave, lambda truth: truth + 1),
        (f"{by_one} after it{background}", remove, lambda truth: truth - 1),
        ("outputs are in the reverse order of the names", "reverse the list of classes", lambda truth: count - 1 - truth),
    ]
    for says, order in (
        ("outputs are in the order of class numbers sorted as text (0, 1, 10, 100, …)", sorted(range(count), key=str)),
        ("outputs are in alphabetical order, the names are not", sorted(range(count), key=lambda at: classes[at].casefold())),
    ):
        if order != list(range(count)):
            place = torch.tensor(order).argsort()  # the output at which each class stands
            orders.append((says, "list the classes in the order of the outputs", partial(_look_up, place)))
    return orders


def _look_up(place: Tensor, truth: Tensor) -> Tensor:
    return place.to(truth.device)[truth]


def _find_order(few: FewImages, logits: Tensor, classes: Sequence[str]) -> list[Finding]:
    """An order found on half of the images of each class and confirmed on the other half."""
    truths, turn = few.truth.tolist(), Counter[int]()
    learn = []
    for truth in truths:
        learn.append(turn[truth] % 2 == 0)
        turn[truth] += 1
    confirm = torch.tensor([not learned and turn[truth] >= 2 for truth, learned in zip(truths, learn, strict=True)])
    if confirm.sum() < 8:
        return []
    chances, known = logits.softmax(1).cpu().numpy(), sorted(turn)
    table = np.stack([chances[[at for at, each in enumerate(truths) if each == truth and learn[at]]].sum(0) for truth in known])
    rows, columns = linear_sum_assignment(table, maximize=True)
    place = {known[row]: int(column) for row, column in zip(rows, columns, strict=True)}
    confirm, meant = confirm.to(logits.device), torch.tensor([place[truth] for truth in truths], device=logits.device)
    evidence = compare(logits[confirm], logits[confirm], few.truth[confirm], meant[confirm])
    moved = [truth for truth, column in place.items() if truth != column]
    if len(moved) < 2 or not is_convincing(evidence) or evidence.accuracy[1] - evidence.accuracy[0] < 0.1:
        return []
    names = f"what is called {classes[moved[0]]!r} comes out at {classes[place[moved[0]]]!r}"
    half = f"with the order that half of the images suggest ({len(moved)} of {len(place)} classes elsewhere), the other half"
    remedy = "list the classes in the order of the outputs; training folders are usually numbered in alphabetical order"
    return [Finding("class order", f"outputs are in another order than the names: {names}", f"{half}: {evidence}", remedy)]


def check_meaning(few: FewImages, logits: Tensor) -> list[Finding]:
    """A model that is sure of what it says and hardly ever right: it sees well and means other names."""
    right = (logits.argmax(1) == few.truth).float().mean().item()
    sure = logits.softmax(1).max(1).values.mean().item()
    if not (sure >= SURE and right < 0.2 * sure and len(few) >= 16):
        return []
    says = "outputs are in another order than the names, or the labels of the data are"
    evidence = f"the model is sure of itself (mean confidence {sure:.0%}) and right on {right:.1%} of {len(few)} images"
    remedy = "compare the list of classes with the one the network was trained with"
    return [Finding("class order", says, f"{evidence}; a network that sees badly is unsure", remedy)]


TOLERANCE = 0.01  # of the spread of the logits; kernels that round differently stay far below it
_EVALUATION = "put the network into evaluation mode: module.eval(), and training=self.training in functional dropout"
_NO_COPY = "replace in-place operations on the input, such as sub_ or data.zero_(), by ones that make a new tensor"


def check_repeatable(model: Model, few: FewImages) -> list[Finding]:
    """Signs of a network in training mode: layers that say so, answers that change, rows that depend on each other."""
    images = few.images[:8].clone()
    with torch.no_grad():
        model.logits(images)
        if changed := float((images - few.images[:8]).abs().max()):
            says = "the model writes into the images it is given; a run hands it copies, other callers may not"
            return [Finding("overwritten input", says, f"pixel values changed by up to {changed:.3g}", _NO_COPY)]
        first, again = model.logits(images).float(), model.logits(images).float()
        alone = torch.cat([model.logits(images[row : row + 1]).float() for row in range(min(4, len(images)))])
    spread = first.std().clamp_min(1e-9)
    noise = float((first - again).abs().max() / spread)
    company = float((first[: len(alone)] - alone).abs().max() / spread)
    layers = _in_training(model)
    which = f" ({layers})" if layers else ""
    if noise > TOLERANCE:
        says = "the model answers differently each time it is asked: dropout or another random layer is at work"
        evidence = f"the same {len(images)} images asked twice: logits differ by {noise:.1%} of their spread{which}"
        return [Finding("training mode", says, evidence, _EVALUATION)]
    if company > TOLERANCE:
        says = "an image's logits depend on the other images of its batch: batch normalisation uses the batch's own statistics"
        evidence = f"the same image alone and among {len(images)}: logits differ by {company:.1%} of their spread{which}"
        return [Finding("training mode", says, evidence, _EVALUATION)]
    says = "layers are in training mode, without effect so far"
    return [Finding("training mode", says, layers, _EVALUATION, severity="caution")] if layers else []


def _in_training(model: Model) -> str:
    layers = (module for root in modules_of(model) for module in root.modules() if isinstance(module, _BatchNorm | _DropoutNd))
    kinds = Counter(type(module).__name__ for module in layers if module.training)
    return ", ".join(f"{count} × {kind} in training mode" for kind, count in kinds.items())
