"""An oracle fitted on the user's own images: a small head on the frozen features of any encoder.

CLIP may not know the classes of a factory or a clinic; a head fitted on a few hundred labelled images of them does. It is
fitted by cross-fitting: the images are dealt into folds, and a generated image is judged by the head that never saw its
source. The same held-out answers say how good the oracle is, calibrate its probabilities, and set the threshold below which
it abstains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest
from torch import Tensor
from torch.nn import functional

from counterfoil.core.errors import BadImage, BadPart, require
from counterfoil.core.naming import stable_hash
from counterfoil.parts import labels as names
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Embedder, Trait, Verdicts, describe, provenance_of, to_device
from counterfoil.parts.oracles.scoring import AcceptanceRule, BelowThreshold

Head = Literal["linear", "knn"]

NEEDED = 5  # images of each class: one to hold out, and something to learn from
BATCH = 16  # images embedded at once
STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularisation of the linear head; the best held-out likelihood decides
NEIGHBOUR_TEMPERATURE = 0.07  # of the votes of neighbours, as is usual for features of self-supervised networks
LOW_ACCURACY = 0.8  # below this the run warns
BY_CLASS = 20  # classes whose accuracy is printed, the least accurate first
UNFITTED = "probe: fit it on labelled images before it judges"


@dataclass(frozen=True)
class ProbeOptions:
    head: Head = "linear"
    folds: int = 5
    k: int = 20
    images_per_class: int = 200
    false_accepts: float = 0.02
    below_threshold: BelowThreshold = "abstain"
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.head not in get_args(Head):
            raise BadPart(f"probe: head is linear or knn, got {self.head!r}")
        if self.folds < 2 or self.k < 1 or self.images_per_class < NEEDED:
            raise BadPart(f"probe: needs 2 folds, 1 neighbour and {NEEDED} images per class or more")
        if not 0 < self.false_accepts < 1:
            raise BadPart(f"probe: false_accepts is a share between 0 and 1, got {self.false_accepts}")


def probe_oracle(encoder: str, options: ProbeOptions) -> ProbeOracle:
    """A head fitted on the run's own images: probe:hf:facebook/dinov2-small, probe:clip:FOLDER, probe:timm:NAME.

    `head` is `linear` (logistic regression) or `knn` (the `k` nearest images vote), on the frozen features of any encoder. It
    is fitted in `folds`, so that an image is judged by a head that never saw its source, on at most `images_per_class` images.
    It abstains (or rejects: `below_threshold`) below the probability at which, on held-out images, the share of images given
    a wrong class with confidence is `false_accepts`. `options` are those of the encoder, which must not be the tested model.
    """
    if not encoder:
        raise BadPart("probe: name an encoder, as in probe:hf:facebook/dinov2-small")
    return ProbeOracle(registry.create("encoder", encoder, options.options), name=encoder, options=options)


@dataclass(frozen=True)
class Quality:
    """Quality of a probe on images that its head has not seen."""

    classes: tuple[str, ...]
    right: tuple[int, ...]  # held-out images of each class that it gives their class
    images: tuple[int, ...]  # of each class
    answered: int  # images on which it does not abstain
    false_accepts: int  # of these, those it gives a wrong class
    threshold: float

    @property
    def accuracy(self) -> tuple[float, float, float]:
        """Accuracy without abstaining, with its exact 95 % interval."""
        return _share(sum(self.right), sum(self.images))

    def by_class(self) -> dict[str, tuple[float, int]]:
        """Accuracy and number of images of each class."""
        return {name: (right / n, n) for name, right, n in zip(self.classes, self.right, self.images, strict=True)}

    def describe(self) -> list[Trait]:
        """The same in sentences, with a caution where it is too often wrong."""
        n, (value, low, high) = sum(self.images), self.accuracy
        each = [(share, f"{name} {share:.0%} of {count}") for name, (share, count) in self.by_class().items()]
        each.sort(key=lambda told: told[0])
        weak = [text for share, text in each[:3] if share < LOW_ACCURACY]
        caution = ""
        if value < LOW_ACCURACY:
            caution = f"the oracle itself is right on {value:.0%} of held-out images; let people judge (review), or add images"
        elif weak:
            caution = f"the oracle is often wrong about {'; '.join(weak)}"
        wrong, _, most = _share(self.false_accepts, n)
        silent = f"abstaining on {n - self.answered} below a probability of {self.threshold:.2f}"
        return [
            Trait("own accuracy", f"{value:.1%} of {n} held-out images ({low:.1%} to {high:.1%})", "cross-fitting", caution),
            Trait("by class", "; ".join(text for _, text in each[:BY_CLASS]), "the least accurate first"),
            Trait("false accepts", f"{wrong:.1%} of {n} (at most {most:.1%}), {silent}", "cross-fitting"),
        ]


@dataclass(frozen=True)
class _Heads:
    """The fitted heads: one per fold, which has not seen that fold, and one that has seen every image."""

    features: Tensor  # (M, D), of length one
    labels: Tensor  # (M,)
    folds: Tensor  # (M,)
    weights: Tensor  # (folds + 1, K, D), empty for neighbours
    biases: Tensor  # (folds + 1, K)
    temperature: float = 1.0

    def to(self, device: torch.device | str) -> _Heads:
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Fit:
    heads: _Heads
    fold_of: Mapping[str, int] = field(repr=False)
    quality: Quality
    rule: AcceptanceRule


class ProbeOracle:
    """Sees the class that a head on frozen features finds most probable.

    `judge` takes, in addition to images and labels, the number of the head that judges each row, from `heads`.
    """

    cross_fitted = True

    def __init__(self, encoder: Embedder, *, name: str = "encoder", options: ProbeOptions | None = None) -> None:
        self.encoder, self.name, self.options = encoder, name, options or ProbeOptions()
        self._classes: tuple[str, ...] = ()
        self._fit: _Fit | None = None

    @property
    def acceptance(self) -> AcceptanceRule:
        """The rule that fitting has found."""
        return self._fitted.rule

    @property
    def quality(self) -> Quality:
        """Its quality on held-out images."""
        return self._fitted.quality

    @property
    def fitted(self) -> bool:
        """Tell whether it has been fitted for the classes it is bound to."""
        return self._fit is not None

    @property
    def _fitted(self) -> _Fit:
        if self._fit is None:
            raise BadPart(UNFITTED)
        return self._fit

    def bind(self, classes: Sequence[str]) -> ProbeOracle:
        """The oracle for these classes; what was fitted for others is dropped."""
        bound = copy(self)
        bound._classes = tuple(classes)
        bound._fit = self._fit if self._classes == bound._classes else None
        return bound

    @torch.no_grad()
    def fit(self, dataset: Dataset, *, size: int | None = None, device: torch.device | str = "cpu") -> ProbeOracle:
        """Fit the heads on labelled images, read at the size of the images that will be judged."""
        if not self._classes:
            raise BadPart("probe: bind it to class names before it is fitted")
        columns = names.match(dataset.classes, self._classes, what="the oracle's classes") if dataset.classes else []
        ids, contents, truth, features = self._read(dataset, columns, size, device)
        folds = _deal(contents, truth, self.options.folds, self._classes)
        heads, scores = _fit_heads(features, torch.tensor(truth), torch.tensor(folds), len(self._classes), self.options)
        rule, quality = _calibrate(scores, torch.tensor(truth), self._classes, self.options)
        fitted = copy(self)
        fitted._fit = _Fit(heads.to(device), dict(zip(ids, folds, strict=True)), quality, rule)
        return fitted

    def heads(self, image_ids: Sequence[str]) -> Tensor:
        """The head that may judge images made from each source: one that has not seen it.  # → (N,) int64"""
        fit = self._fitted
        return torch.tensor([fit.fold_of.get(image_id, self.options.folds) for image_id in image_ids])

    def probabilities(self, images: Tensor, heads: Tensor | None = None) -> Tensor:
        fit = self._fitted
        features = functional.normalize(self.encoder.embed_images(images).float(), dim=-1)
        if heads is None:
            heads = torch.full((len(images),), self.options.folds)
        scores = _scores(fit.heads, features, heads.to(features.device), len(self._classes), self.options.k)
        return (scores / fit.heads.temperature).softmax(dim=-1)

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor, heads: Tensor | None = None) -> Verdicts:
        """A verdict per image on its label.  # (N, 3, H, W), (N,) int64, (N,) int64"""
        return self.acceptance.decide(self.probabilities(images, heads), labels)

    def to(self, device: torch.device | str) -> ProbeOracle:
        self.encoder = to_device(self.encoder, device)
        if self._fit is not None:
            self._fit = replace(self._fit, heads=self._fit.heads.to(device))
        return self

    def describe(self) -> list[Trait]:
        head = "logistic regression" if self.options.head == "linear" else f"the {self.options.k} nearest images vote"
        traits = [*describe(self.encoder), Trait("head", f"{head}, on features of {self.name}, in {self.options.folds} folds")]
        if self._fit is None:
            return traits
        return [*traits, replace(self._fit.rule.describe(), decided_by="cross-fitting"), *self._fit.quality.describe()]

    def provenance(self) -> dict[str, str]:
        account = {"encoder": self.name, **provenance_of(self.encoder), "head": self.options.head}
        if self._fit is None:
            return account
        quality, (value, low, high) = self._fit.quality, self._fit.quality.accuracy
        return {
            **account,
            "own_accuracy_by_class": "; ".join(f"{name} {share:.4f} of {n}" for name, (share, n) in quality.by_class().items()),
            "own_accuracy": f"{value:.4f} ({low:.4f} to {high:.4f}) on {sum(quality.images)} held-out images",
            "false_accepts": f"{quality.false_accepts} of {sum(quality.images)}",
            "threshold": f"{quality.threshold:.4f}",
        }

    def _read(
        self, dataset: Dataset, columns: Sequence[int], size: int | None, device: torch.device | str
    ) -> tuple[list[str], list[int], list[int], Tensor]:
        """Ids, contents, labels and features of the images it is fitted on.  # features: (M, D), of length one"""
        encoder = to_device(self.encoder, device)
        chosen = _choose(dataset, self.options.images_per_class)
        ids, contents, truth, features, waiting = [], [], [], [], []
        for number, sample in enumerate(chosen):
            try:
                image = dataset.load(sample, size or getattr(encoder, "size", None))
            except BadImage:
                image = None  # the run itself says so
            if image is not None:
                ids.append(sample.image_id)
                contents.append(stable_hash((image * 255).round().byte().numpy().tobytes()))
                truth.append(columns[sample.label])
                waiting.append(image)
            if waiting and (len(waiting) == BATCH or number == len(chosen) - 1):
                embedded = encoder.embed_images(torch.stack(waiting).to(device)).float().cpu()
                features.append(functional.normalize(embedded, dim=-1))
                waiting = []
        if not ids:
            raise BadPart("probe: there is no readable image to fit it on")
        return ids, contents, truth, torch.cat(features)


def _choose(dataset: Dataset, most: int) -> list[Any]:
    """At most so many samples of each class, drawn by their ids and in the data set's order."""
    samples = list(dataset)
    drawn: Counter[int] = Counter()
    chosen = set()
    for sample in sorted(samples, key=lambda one: stable_hash("probe", one.image_id)):
        if drawn[sample.label] < most:
            drawn[sample.label] += 1
            chosen.add(sample.image_id)
    return [sample for sample in samples if sample.image_id in chosen]


def _deal(contents: Sequence[int], truth: Sequence[int], folds: int, classes: Sequence[str]) -> list[int]:
    """A fold for each image, even within each class; copies of one image share theirs."""
    fold: dict[int, int] = {}
    for label, name in enumerate(classes):
        own = {content for content, of in zip(contents, truth, strict=True) if of == label}
        if len(own) < NEEDED:
            found = f"{len(own)} different readable image{'' if len(own) == 1 else 's'}"
            raise BadPart(f"probe: class {name!r} has {found}; it takes {NEEDED} of each class to fit an oracle and check it")
        for number, content in enumerate(sorted(own, key=lambda each: stable_hash("fold", each))):
            fold.setdefault(content, number % folds)
    return [fold[content] for content in contents]


def _fit_heads(features: Tensor, truth: Tensor, folds: Tensor, classes: int, options: ProbeOptions) -> tuple[_Heads, Tensor]:
    """The heads, calibrated, and the scores of each image by the head that has not seen it.  # scores: (M, K)"""
    empty = torch.zeros(0)
    candidates = [_Heads(features, truth, folds, empty, empty)]
    if options.head == "linear":
        candidates = [
            _Heads(features, truth, folds, *_linear(features, truth, folds, classes, options.folds, c)) for c in STRENGTHS
        ]
    held_out = [_scores(heads, features, folds, classes, options.k).double() for heads in candidates]
    fitted = [_temperature(scores, truth) for scores in held_out]
    best = min(range(len(fitted)), key=lambda which: fitted[which][1])
    heads, temperature = candidates[best], fitted[best][0]
    return replace(heads, temperature=temperature), held_out[best] / temperature


def _linear(features: Tensor, truth: Tensor, folds: Tensor, classes: int, count: int, strength: float) -> tuple[Tensor, Tensor]:
    """Logistic regression without each fold in turn, and with all of them.  # → (folds + 1, K, D), (folds + 1, K)"""
    regression = require("sklearn.linear_model", what="probe").LogisticRegression
    weights = torch.zeros(count + 1, classes, features.shape[1])
    biases = torch.full((count + 1, classes), 0.0)
    for number in range(count + 1):
        seen = folds != number
        head = regression(C=strength, max_iter=1000).fit(features[seen].double().numpy(), truth[seen].numpy())
        rows, bias = torch.from_numpy(head.coef_).float(), torch.from_numpy(head.intercept_).float()
        if classes == 2:  # one row stands for the second class
            rows, bias = torch.cat([-rows / 2, rows / 2]), torch.cat([-bias / 2, bias / 2])
        weights[number], biases[number] = rows, bias
    return weights, biases


def _scores(heads: _Heads, features: Tensor, which: Tensor, classes: int, k: int) -> Tensor:
    """Logits of each row by its own head.  # (N, D), (N,) → (N, K)"""
    if len(heads.weights):
        return torch.einsum("nd,nkd->nk", features, heads.weights[which]) + heads.biases[which]
    near = features @ heads.features.T  # (N, M)
    near = near.masked_fill(heads.folds[None] == which[:, None], -torch.inf)
    nearest, index = near.topk(min(k, near.shape[1]), dim=1)
    votes = (nearest / NEIGHBOUR_TEMPERATURE).softmax(dim=1)  # (N, k)
    shares = torch.zeros(len(features), classes, device=features.device).scatter_add_(1, heads.labels[index], votes)
    return (shares + 1e-3).log()


def _temperature(scores: Tensor, truth: Tensor) -> tuple[float, float]:
    """The temperature at which held-out probabilities fit best, and their mean negative log-likelihood."""
    found = minimize_scalar(
        lambda power: float(functional.cross_entropy(scores / math.exp(power), truth)), bounds=(-4, 4), method="bounded"
    )
    return math.exp(found.x), float(found.fun)


def _calibrate(scores: Tensor, truth: Tensor, classes: Sequence[str], options: ProbeOptions) -> tuple[AcceptanceRule, Quality]:
    """The rule, with the threshold for the stated rate of false accepts, and the quality on held-out images."""
    confidence, predicted = scores.softmax(dim=1).max(dim=1)
    right = predicted == truth
    wrong = confidence[~right].sort(descending=True).values
    allowed = int(options.false_accepts * len(truth))
    # Just above the most confident mistake that is one too many; verdicts are in float32, hence the room.
    threshold = min(float(wrong[allowed]) + 1e-4, 1.0) if len(wrong) > allowed else 0.0
    sure = confidence >= threshold
    hits, images = (torch.bincount(labels, minlength=len(classes)).tolist() for labels in (truth[right], truth))
    quality = Quality(tuple(classes), tuple(hits), tuple(images), int(sure.sum()), int((sure & ~right).sum()), threshold)
    (value, low, _), most = quality.accuracy, max(images)
    if low <= most / len(truth):
        always = f"no better than always answering {classes[images.index(most)]!r} ({most / len(truth):.0%})"
        raise BadPart(
            f"probe: it is right on {value:.0%} of {len(truth)} held-out images, {always}; take another encoder or more images, "
            "or let people judge (review)"
        )
    return AcceptanceRule(threshold, below_threshold=options.below_threshold), quality


def _share(hits: int, n: int) -> tuple[float, float, float]:
    """A share with its exact (Clopper-Pearson) 95 % interval."""
    interval = binomtest(hits, n).proportion_ci(method="exact")
    return hits / n, float(interval.low), float(interval.high)
