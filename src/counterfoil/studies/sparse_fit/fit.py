"""Finds the dimensions that tell perturbed latents from original ones, by logistic regression under an L1 penalty.

2n flattened latents, original 0 and perturbed 1; four fifths to fit on and one fifth to test. The paper gives a regularisation
of 36.36 and does not say of what: of its own formula it is λ, the weight of the penalty against the summed loss; in
scikit-learn's it would be C, the weight of the loss, which is 1 / λ. Both are to be had. What either comes to depends on how
many images there are, so the default looks for the λ that leaves a sparsity like the paper's.

Images differ from each other far more than any of them from its own perturbed version. `matched`, the default, takes that out:
every latent is counted from the middle between its image's two, and what is left is what was changed. Without it the
regression is the paper's to the letter, and with a few hundred images it tells nothing.
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
from counterfoil.parts.generators.sparse.mask import Mask

Meaning = Literal["lambda", "C"]
TEST_SHARE = 0.2
HALVINGS = 10  # of a range of a thousand: λ to within one per cent


@dataclass(frozen=True)
class Settings:
    """How the regression is set up."""

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
    order = np.random.default_rng(settings.seed).permutation(len(original))
    held = order[: max(1, round(TEST_SHARE * len(order)))]  # an image's two latents are held out together
    images = np.tile(np.arange(len(original)), 2)
    tested = np.isin(images, held)
    penalty, model = _regress(rows[~tested], labels[~tested], settings)
    right = model.predict(rows[tested]) == labels[tested]
    columns = {"right": right.astype(np.int64), "all": np.ones(len(right), np.int64)}
    score = estimate(columns, {"score": Share("right", "all")}, clusters=images[tested])["score"]
    found = {"lambda": penalty, "pairs": len(original), "test_score": score.to_dict()}
    about = {**asdict(settings), **found, "library": f"scikit-learn {version('scikit-learn')}"}
    return Fitted(Mask(torch.from_numpy(model.coef_[0] != 0).reshape(original.shape[1:]), about), score)


def _regress(rows: NDArray[Any], labels: NDArray[Any], settings: Settings) -> tuple[float, Any]:
    """λ, and the regression under it."""
    given = settings.regularisation
    if given is None:
        return _to_sparsity(rows, labels, settings)
    penalty = given if settings.meaning == "lambda" else 1 / given
    return penalty, _under(penalty, rows, labels, settings)


def _to_sparsity(rows: NDArray[Any], labels: NDArray[Any], settings: Settings) -> tuple[float, Any]:
    """The λ whose sparsity comes nearest to the wanted one and keeps something, by halving on a log scale."""
    high = float(np.abs((rows - rows.mean(0)).T @ (labels - labels.mean())).max())  # from here on nothing is kept
    low = high / 1000
    tried: list[tuple[float, float, Any]] = []
    for _ in range(HALVINGS):
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
