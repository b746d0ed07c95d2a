"""Fit which latent dimensions a sparse search moves, by scikit-learn's logistic regression; two questions.

`fit` asks which dimensions tell perturbed latents from original ones, under an L1 penalty, as the paper does: 2n flattened
latents, original 0 and perturbed 1; four fifths to fit on and one fifth to test. The paper gives a regularisation of 36.36 and
does not say of what: of its own formula it is λ, the weight of the penalty against the summed loss; in scikit-learn's it would be
C, the weight of the loss, which is 1 / λ. Both are to be had. What either comes to depends on how many images there are, so the
default looks for the λ that leaves a sparsity like the paper's. Images differ from each other far more than any of them from its
own perturbed version. `matched`, the default, takes that out: every latent is counted from the middle between its image's two.

`fit_cells` asks which cells tell the classes apart. A decoder works cell by cell, and what has to be decoded is a rectangle; so
the rectangle of the wanted size with most weight is taken, and all of its cells move. The score is that of a regression on these
cells alone.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.errors import BadData, BadSpec
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Share, estimate
from counterfoil.parts.fast.window import Box
from counterfoil.parts.generators.masked import Mask

Meaning = Literal["lambda", "C"]
TEST_SHARE = 0.2
HALVINGS = 10  # of a range of a thousand: λ to within one per cent
LEAST = 40  # latents, to tell classes apart
COMPONENTS = 256  # principal components that classes are told by; weights are mapped back
STRENGTHS = tuple(10.0**power for power in range(-5, 1))  # C, of which cross-validation chooses


@dataclass(frozen=True)
class Settings:
    """Options of the regression on single dimensions."""

    regularisation: float | None = None  # None: whatever leaves about `sparsity`
    meaning: Meaning = "lambda"
    sparsity: float = 99.0  # per cent; the paper's are 98.0 to 99.3
    standardise: bool = False  # each dimension by its standard deviation, so that the penalty treats all alike
    matched: bool = True  # count each latent from the middle of its pair
    iterations: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.regularisation is not None and not self.regularisation > 0:
            raise BadSpec(f"regularisation={self.regularisation}: a positive number, such as 36.36, or null to look for one")
        if not 0 < self.sparsity < 100:
            raise BadSpec(f"sparsity={self.sparsity}: the per cent of dimensions held still, between 0 and 100")
        if self.meaning not in get_args(Meaning):
            raise BadSpec(f"meaning={self.meaning!r}: one of {', '.join(get_args(Meaning))}")


@dataclass(frozen=True)
class CellSettings:
    """Options of the choice of cells."""

    window: float = 65.0  # per cent of the image that may be decoded again
    halo: int = 0  # cells around the kept ones that are decoded with them
    folds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.window <= 100:
            raise BadSpec(f"window={self.window}: the per cent of the image that may be decoded again, above 0 and at most 100")
        if self.halo < 0:
            raise BadSpec(f"halo={self.halo}: cells around the kept ones that are decoded with them, 0 or more")


@dataclass(frozen=True)
class Fitted:
    """A mask, and how well its regression answers its question for latents it has not seen."""

    mask: Mask
    score: Estimate  # per cent right on the test fifth
    chance: float = 50.0  # per cent right by always naming the most frequent answer


def fit(original: Tensor, perturbed: Tensor, settings: Settings) -> Fitted:
    """The dimensions with a weight other than zero.  # (n, …) twice"""
    if original.shape != perturbed.shape or len(original) < 10:
        raise BadData(f"sparse: needs ten or more pairs of latents, got {len(original)} and {len(perturbed)}")
    middle = (original + perturbed) / 2 if settings.matched else torch.zeros_like(original)
    rows = torch.cat([original - middle, perturbed - middle]).flatten(1).double().numpy()  # (2n, d)
    labels = np.repeat([0, 1], len(original))
    if settings.standardise:
        rows = (rows - rows.mean(0)) / np.maximum(rows.std(0), 1e-12)
    images = np.tile(np.arange(len(original)), 2)
    tested = _test_rows(len(original), settings.seed)[images]  # an image's two latents are held out together
    penalty, model = _regress(rows[~tested], labels[~tested], settings)
    score = _score(model.predict(rows[tested]) == labels[tested], images[tested])
    found = {"lambda": penalty, "pairs": len(original), "test_score": score.to_dict()}
    about = {**asdict(settings), **found, "library": f"scikit-learn {version('scikit-learn')}"}
    return Fitted(Mask(torch.from_numpy(model.coef_[0] != 0).reshape(original.shape[1:]), about), score)


def _regress(rows: NDArray[Any], labels: NDArray[Any], settings: Settings) -> tuple[float, Any]:
    """λ, and the regression under it; without a regularisation, the λ whose sparsity is nearest to the wanted one."""
    given = settings.regularisation
    if given is not None:
        penalty = given if settings.meaning == "lambda" else 1 / given
        return penalty, _under(penalty, rows, labels, settings)
    high = float(np.abs((rows - rows.mean(0)).T @ (labels - labels.mean())).max())  # from here on nothing is kept
    low = high / 1000
    tried: list[tuple[float, float, Any]] = []
    for _ in range(HALVINGS):  # on a log scale
        penalty = (low * high) ** 0.5
        model = _under(penalty, rows, labels, settings)
        sparsity = 100 * float((model.coef_[0] == 0).mean())
        tried.append((abs(sparsity - settings.sparsity) if sparsity < 100 else np.inf, penalty, model))
        low, high = (penalty, high) if sparsity < settings.sparsity else (low, penalty)
    return min(tried, key=lambda one: one[0])[1:]


def _under(penalty: float, rows: NDArray[Any], labels: NDArray[Any], settings: Settings) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    options: dict[str, Any] = {"C": 1 / penalty, "l1_ratio": 1.0, "solver": "saga"}
    if tuple(int(part) for part in version("scikit-learn").split(".")[:2]) < (1, 8):
        options["penalty"] = "elasticnet"  # later versions read it off l1_ratio
    model = LogisticRegression(max_iter=settings.iterations, random_state=settings.seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # which weights are zero settles long before their values
        return model.fit(rows, labels)


def fit_cells(latents: Tensor, labels: Tensor, settings: CellSettings) -> Fitted:
    """The rectangle of cells that tell classes apart best.  # (n, C, H, W), (n,)"""
    if latents.dim() != 4:
        raise BadData(
            f"sparse: a latent of shape {tuple(latents.shape[1:])} has no rows and columns of cells; use question=perturbed"
        )
    names, answers = np.unique(labels.numpy(), return_inverse=True)
    if len(latents) < LEAST or len(names) < 2:
        raise BadData(f"sparse: needs {LEAST} or more images of two or more classes, got {len(latents)} of {len(names)}")
    shape, rows = latents.shape[1:], latents.float().flatten(1).numpy()
    tested = _test_rows(len(latents), settings.seed)
    weights = _class_weights(rows[~tested], answers[~tested], settings)  # (C·H·W,)
    if not weights.any():
        raise BadData(
            f"sparse: no cell of {len(latents)} latents tells the classes apart; give more images, or question=perturbed"
        )
    box = _window(torch.from_numpy(weights).reshape(shape).sum(0), settings)
    kept = box.cells(grid=(shape[1], shape[2])).expand(shape).contiguous()
    inside = kept.flatten().numpy()
    model = _classifier(rows[~tested][:, inside], answers[~tested], settings)
    score = _score(model.predict(rows[tested][:, inside]) == answers[tested], np.arange(int(tested.sum())))
    chance = 100 * float(np.bincount(answers[tested]).max()) / int(tested.sum())
    found = {"images": len(latents), "classes": len(names), "test_score": score.to_dict(), "chance": chance}
    about = {"question": "class", **asdict(settings), **found, "library": f"scikit-learn {version('scikit-learn')}"}
    return Fitted(Mask(kept, about, settings.halo), score, chance)


def _classifier(rows: NDArray[Any], answers: NDArray[Any], settings: CellSettings) -> Any:
    """A regression under a squared penalty whose strength is cross-validated, on principal components to be quick."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = KFold(settings.folds, shuffle=True, random_state=settings.seed)
    components = PCA(min(COMPONENTS, *rows.shape), random_state=settings.seed)
    regression = GridSearchCV(LogisticRegression(max_iter=500), {"C": STRENGTHS}, cv=folds)

    return make_pipeline(StandardScaler(), components, regression).fit(rows, answers)


def _class_weights(rows: NDArray[Any], answers: NDArray[Any], settings: CellSettings) -> NDArray[np.float64]:
    """The squared weights of every dimension, in its standard deviations, summed over classes.  # (n, d), (n,) → (d,)"""
    if not rows.std(0).any():
        return np.zeros(rows.shape[1])
    model = _classifier(rows, answers, settings)
    weights = model[-1].best_estimator_.coef_ @ model[1].components_  # (K, d)
    return np.asarray(np.square(weights).sum(0), np.float64)


def _window(weights: Tensor, settings: CellSettings) -> Box:
    """The box with most of the weight whose window, halo included, is no larger than wanted.  # (H, W)"""
    grid = (weights.shape[0], weights.shape[1])
    allowed = settings.window / 100 * weights.numel()
    for area in range(weights.numel(), 0, -1):
        box = best_box(weights, area=area)
        if box.dilate(settings.halo, grid=grid).area <= allowed:
            return box
    raise BadSpec(f"window={settings.window}: less than one cell of {grid[0]} × {grid[1]} and its halo; use a larger one")


def best_box(weights: Tensor, *, area: int) -> Box:
    """The box of at most `area` cells that holds most of the weight.  # (H, W), not negative"""
    height, width = weights.shape
    sums = torch.zeros(height + 1, width + 1, dtype=torch.float64)
    sums[1:, 1:] = weights.double().cumsum(0).cumsum(1)
    best, found = -1.0, Box(0, 0, 1, 1)
    for tall in range(1, min(height, area) + 1):
        wide = min(width, area // tall)
        held = sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]  # by its top left cell
        most = int(held.argmax())
        top, left = divmod(most, held.shape[1])
        if float(held.flatten()[most]) > best + 1e-12:
            best, found = float(held.flatten()[most]), Box(top, left, top + tall, left + wide)
    return found


def _test_rows(count: int, seed: int) -> NDArray[np.bool_]:
    """The fifth of some latents that is held out.  # (n,)"""
    order = np.random.default_rng(seed).permutation(count)
    return np.isin(np.arange(count), order[: max(1, round(TEST_SHARE * count))])


def _score(right: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Estimate:
    """Per cent right on rows it has not seen."""
    columns = {"right": right.astype(np.int64), "all": np.ones(len(right), np.int64)}
    return estimate(columns, {"score": Share("right", "all")}, clusters=clusters)["score"]
