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
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from counterfoil.core.errors import BadData, BadSpec
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Share, estimate
from counterfoil.parts.fast.window import Box
from counterfoil.parts.generators.masked import Mask

TEST_SHARE = 0.2
HALVINGS = 10  # of a range of a thousand: λ to within one per cent
LEAST = 40  # latents, to tell classes apart
COMPONENTS = 256  # principal components that classes are told by; weights are mapped back
STRENGTHS = tuple(10.0**power for power in range(-5, 1))  # C, of which cross-validation chooses


@dataclass(frozen=True)
class Fitted:
    """A mask, and how well its regression answers its question for latents it has not seen."""

    mask: Mask
    score: Estimate  # per cent right on the test fifth
    chance: float = 50.0  # per cent right by always naming the most frequent answer


def fit(
    original: Tensor,
    perturbed: Tensor,
    *,
    regularisation: float | None = None,
    meaning: str = "lambda",
    sparsity: float = 99.0,
    matched: bool = True,
    iterations: int = 200,
    seed: int = 0,
) -> Fitted:
    """The dimensions with a weight other than zero; without a regularisation, as many as leave `sparsity`.  # (n, …) twice"""
    if regularisation is not None and not regularisation > 0:
        raise BadSpec(f"regularisation={regularisation}: a positive number, such as 36.36, or null to look for one")
    if not 0 < sparsity < 100:
        raise BadSpec(f"sparsity={sparsity}: the per cent of dimensions held still, between 0 and 100")
    if meaning not in ("lambda", "C"):
        raise BadSpec(f"meaning={meaning!r}: one of lambda, C")
    if original.shape != perturbed.shape or len(original) < 10:
        raise BadData(f"sparse: needs ten or more pairs of latents, got {len(original)} and {len(perturbed)}")
    middle = (original + perturbed) / 2 if matched else torch.zeros_like(original)
    rows = torch.cat([original - middle, perturbed - middle]).flatten(1).double().numpy()  # (2n, d)
    labels = np.repeat([0, 1], len(original))
    images = np.tile(np.arange(len(original)), 2)
    tested = _test_rows(len(original), seed)[images]  # an image's two latents are held out together

    def under(penalty: float) -> tuple[float, float, Any]:
        model = _lasso(penalty, rows[~tested], labels[~tested], iterations=iterations, seed=seed)
        return penalty, 100 * float((model.coef_[0] == 0).mean()), model

    if regularisation is not None:
        found = under(regularisation if meaning == "lambda" else 1 / regularisation)
    else:
        fitted, answers = rows[~tested], labels[~tested]
        high = float(np.abs((fitted - fitted.mean(0)).T @ (answers - answers.mean())).max())  # from here on nothing is kept
        low, tried = high / 1000, []
        for _ in range(HALVINGS):  # on a log scale
            tried.append(under((low * high) ** 0.5))
            low, high = (tried[-1][0], high) if tried[-1][1] < sparsity else (low, tried[-1][0])
        found = min(tried, key=lambda each: abs(each[1] - sparsity) if each[1] < 100 else np.inf)
    penalty, _, model = found
    kept = torch.from_numpy(model.coef_[0] != 0).reshape(original.shape[1:])
    if not bool(kept.any()):
        raise BadSpec(
            f"sparse: a regularisation of {regularisation} as {meaning} keeps no dimension of {len(original)} pairs; "
            "give more images or a weaker one, or leave it out to have one looked for"
        )
    score = _score(model.predict(rows[tested]) == labels[tested], images[tested])
    about = {"question": "perturbed", "lambda": penalty, "sparsity": sparsity, "matched": matched, "pairs": len(original)}
    return Fitted(_mask(kept, score, about, seed), score)


def _lasso(penalty: float, rows: NDArray[Any], labels: NDArray[Any], *, iterations: int, seed: int) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    options: dict[str, Any] = {"C": 1 / penalty, "l1_ratio": 1.0, "solver": "saga"}
    if tuple(int(part) for part in version("scikit-learn").split(".")[:2]) < (1, 8):
        options["penalty"] = "elasticnet"  # later versions read it off l1_ratio
    model = LogisticRegression(max_iter=iterations, random_state=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # which weights are zero settles long before their values
        return model.fit(rows, labels)


def fit_cells(latents: Tensor, labels: Tensor, *, window: float = 65.0, halo: int = 0, seed: int = 0) -> Fitted:
    """The rectangle of cells that tell classes apart best.  # (n, C, H, W), (n,)

    No more than `window` per cent of the image may be decoded again, `halo` cells around the kept ones included.
    """
    if not 0 < window <= 100:
        raise BadSpec(f"window={window}: the per cent of the image that may be decoded again, above 0 and at most 100")
    if halo < 0:
        raise BadSpec(f"halo={halo}: cells around the kept ones that are decoded with them, 0 or more")
    if latents.dim() != 4:
        raise BadData(
            f"sparse: a latent of shape {tuple(latents.shape[1:])} has no rows and columns of cells; use question=perturbed"
        )
    names, answers = np.unique(labels.numpy(), return_inverse=True)
    if len(latents) < LEAST or len(names) < 2:
        raise BadData(f"sparse: needs {LEAST} or more images of two or more classes, got {len(latents)} of {len(names)}")
    shape, rows = latents.shape[1:], latents.float().flatten(1).numpy()
    tested = _test_rows(len(latents), seed)
    weights = np.zeros(rows.shape[1])
    if rows[~tested].std(0).any():
        model = _classifier(rows[~tested], answers[~tested], seed)
        squares = np.square(model[-1].best_estimator_.coef_ @ model[1].components_)  # (K, d), in standard deviations
        weights = np.asarray(squares.sum(0), np.float64)
    if not weights.any():
        raise BadData(
            f"sparse: no cell of {len(latents)} latents tells the classes apart; give more images, or question=perturbed"
        )
    box = best_window(torch.from_numpy(weights).reshape(shape).sum(0), window=window, halo=halo)
    kept = box.cells(grid=(shape[1], shape[2])).expand(shape).contiguous()
    inside = kept.flatten().numpy()
    model = _classifier(rows[~tested][:, inside], answers[~tested], seed)
    score = _score(model.predict(rows[tested][:, inside]) == answers[tested], np.arange(int(tested.sum())))
    chance = 100 * float(np.bincount(answers[tested]).max()) / int(tested.sum())
    about = {"question": "class", "window": window, "images": len(latents), "classes": len(names), "chance": chance}
    return Fitted(_mask(kept, score, about, seed, halo), score, chance)


def _classifier(rows: NDArray[Any], answers: NDArray[Any], seed: int) -> Any:
    """A regression under a squared penalty whose strength is cross-validated, on principal components to be quick."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    components = PCA(min(COMPONENTS, *rows.shape), random_state=seed)
    folds = KFold(3, shuffle=True, random_state=seed)
    regression = GridSearchCV(LogisticRegression(max_iter=500), {"C": STRENGTHS}, cv=folds)
    return make_pipeline(StandardScaler(), components, regression).fit(rows, answers)


def best_window(weights: Tensor, *, window: float, halo: int = 0) -> Box:
    """The box with most of the weight whose cells, halo included, are at most `window` per cent.  # (H, W), not negative"""
    height, width = weights.shape
    sums = torch.zeros(height + 1, width + 1, dtype=torch.float64)
    sums[1:, 1:] = weights.double().cumsum(0).cumsum(1)
    best, found = 0.0, None
    for tall in range(1, height + 1):
        for wide in range(1, width + 1):
            held = sums[tall:, wide:] - sums[:-tall, wide:] - sums[tall:, :-wide] + sums[:-tall, :-wide]  # by its top left cell
            decoded = _reach(height, tall, halo)[:, None] * _reach(width, wide, halo)
            held[decoded > window / 100 * weights.numel()] = 0
            most = int(held.argmax())
            top, left = divmod(most, held.shape[1])
            if float(held[top, left]) > best + 1e-12:
                best, found = float(held[top, left]), Box(top, left, top + tall, left + wide)
    if found is None:
        raise BadSpec(f"window={window}: less than one cell of {height} × {width} and its halo; use a larger one")
    return found


def _reach(cells: int, size: int, halo: int) -> Tensor:
    """The cells along one side that a box of that size decodes, halo included, by where it begins."""
    begin = torch.arange(cells - size + 1)
    return (begin + size + halo).clamp_max(cells) - (begin - halo).clamp_min(0)


def _mask(kept: Tensor, score: Estimate, about: dict[str, Any], seed: int, halo: int = 0) -> Mask:
    library = f"scikit-learn {version('scikit-learn')}"
    return Mask(kept, {**about, "seed": seed, "test_score": score.to_dict(), "library": library}, halo)


def _test_rows(count: int, seed: int) -> NDArray[np.bool_]:
    """The fifth of some latents that is held out.  # (n,)"""
    order = np.random.default_rng(seed).permutation(count)
    return np.isin(np.arange(count), order[: max(1, round(TEST_SHARE * count))])


def _score(right: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Estimate:
    """Per cent right on rows it has not seen."""
    columns = {"right": right.astype(np.int64), "all": np.ones(len(right), np.int64)}
    return estimate(columns, {"score": Share("right", "all")}, clusters=clusters)["score"]
