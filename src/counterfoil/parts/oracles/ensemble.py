"""Several oracles that answer as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry
from counterfoil.parts.contracts import Dataset, Movable, Oracle, Trait, Verdicts, describe, provenance_of
from counterfoil.parts.oracles.scoring import ARGMAX, AcceptanceRule, ScoringOracle

Rule = Literal["unanimous", "majority", "mean"]


@dataclass(frozen=True)
class EnsembleOptions(AcceptanceRule):
    members: Sequence[Any] = ()
    rule: Rule = "unanimous"


def ensemble_oracle(rest: str, options: EnsembleOptions) -> EnsembleOracle:
    """Several oracles that answer as one: ensemble: with `members` (a list of oracles) and `rule`.

    Rules: `unanimous`, kept if none rejects; `majority`, kept if more keep than reject; `mean`, kept if the label is the
    most probable by the mean of their probabilities (`threshold`, `margin` and `below_threshold` as for the oracle
    `classifier`). Members that abstain are left out; the ensemble abstains where all do.
    """
    if rest:
        raise BadPart(f"ensemble:{rest}: takes nothing behind the colon; give its oracles as the option members")
    acceptance = options.alone
    if options.rule != "mean" and acceptance != ARGMAX:
        raise BadPart(f"ensemble: threshold, margin and below_threshold belong to the rule mean, not to {options.rule}")
    return EnsembleOracle([_member(member) for member in options.members], rule=options.rule, acceptance=acceptance)


class EnsembleOracle(Movable):
    """Several oracles under one rule. The score is the mean of the scores of those who answer.

    The class seen is the one named by most of those who answer, the lowest of equals; for `mean` the most probable one.
    """

    def __init__(self, members: Sequence[Oracle], *, rule: Rule = "unanimous", acceptance: AcceptanceRule = ARGMAX) -> None:
        if len(members) < 2:
            raise BadPart(f"ensemble: needs two or more members, got {len(members)}")
        strange = next((member for member in members if rule == "mean" and not isinstance(member, ScoringOracle)), None)
        if strange is not None:
            raise BadPart(f"ensemble: {type(strange).__name__} gives no probabilities to take the mean of; use the rule majority")
        self.members = list(members)
        self.rule = rule
        self.acceptance = acceptance
        self._classes = 0

    def bind(self, classes: Sequence[str]) -> EnsembleOracle:
        bound = copy(self)
        bound.members = [member.bind(classes) for member in self.members]
        bound._classes = len(classes)
        return bound

    @property
    def cross_fitted(self) -> bool:
        """Tell whether a member is fitted on the run's images."""
        return any(map(_is_cross_fitted, self.members))

    @property
    def fitted(self) -> bool:
        """Tell whether all of these have been."""
        return all(getattr(one, "fitted", True) for one in self.members)

    def fit(self, dataset: Dataset, *, size: int | None = None, device: torch.device | str = "cpu") -> EnsembleOracle:
        """The ensemble with those members fitted that can be."""
        fitted = copy(self)
        fitted.members = [one.fit(dataset, size=size, device=device) if _is_cross_fitted(one) else one for one in self.members]  # type: ignore[attr-defined]
        return fitted

    def heads(self, image_ids: Sequence[str]) -> Tensor:
        """The head of each member that may judge images made from each source.  # → (N, M)"""
        none = torch.zeros(len(image_ids), dtype=torch.int64)
        return torch.stack([one.heads(image_ids) if _is_cross_fitted(one) else none for one in self.members], dim=1)  # type: ignore[attr-defined]

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor, heads: Tensor | None = None) -> Verdicts:
        """A verdict per image on its label.  # (N, 3, H, W), (N,) int64, (N, M)"""
        if self.rule == "mean":
            return self._mean(images, labels, heads)
        verdicts = [one.judge(images, labels, *own) for one, own in zip(self.members, self._own(heads), strict=True)]
        votes = torch.stack([verdict.keeps_label for verdict in verdicts])  # (M, N)
        yes, no = (votes == 1).sum(dim=0), (votes == 0).sum(dim=0)  # (N,)
        keeps = (no == 0) if self.rule == "unanimous" else (yes > no)
        silent = yes + no == 0
        scores = torch.stack([verdict.scores for verdict in verdicts])
        predicted = torch.stack([verdict.predicted for verdict in verdicts])
        return Verdicts(
            keeps_label=torch.where(silent, -1, keeps.to(torch.int8)).to(torch.int8),
            scores=_mean_of(scores, (votes != -1) | silent),
            predicted=self._most_named(predicted, (votes != -1) | silent),
        )

    def describe(self) -> list[Trait]:
        traits = [Trait("rule", self.rule if self.rule != "mean" else f"mean; {self.acceptance.describe().value}", "the options")]
        for number, member in enumerate(self.members):
            traits += [replace(trait, what=f"{trait.what} of member {number}") for trait in describe(member)]
        return traits

    def provenance(self) -> dict[str, str]:
        own = [(number, *item) for number, member in enumerate(self.members) for item in provenance_of(member).items()]
        return {"rule": self.rule, **{f"{number}.{key}": value for number, key, value in own}}

    def _own(self, heads: Tensor | None) -> list[tuple[Tensor, ...]]:
        """Each member's column of `heads`, where it takes one."""
        return [(heads[:, at],) if heads is not None and _is_cross_fitted(one) else () for at, one in enumerate(self.members)]

    def _mean(self, images: Tensor, labels: Tensor, heads: Tensor | None) -> Verdicts:
        shares, speaks = [], []
        for member, own in zip(self.members, self._own(heads), strict=True):
            assert isinstance(member, ScoringOracle)
            probabilities = member.probabilities(images, *own)  # (N, K)
            speaks.append(member.acceptance.decide(probabilities, labels).keeps_label != -1)
            shares.append(probabilities / probabilities.sum(dim=1, keepdim=True).clamp_min(1e-12))
        speaking = torch.stack(speaks)  # (M, N)
        silent = ~speaking.any(dim=0)
        mean = _mean_of(torch.stack(shares), (speaking | silent)[:, :, None])  # (N, K)
        verdicts = self.acceptance.decide(mean, labels)
        keeps = torch.where(silent, -1, verdicts.keeps_label).to(torch.int8)
        return Verdicts(keeps_label=keeps, scores=verdicts.scores, predicted=verdicts.predicted)

    def _most_named(self, predicted: Tensor, counted: Tensor) -> Tensor:
        """The class named most often in each column, or -1 where none is named.  # (M, N) → (N,)"""
        named = counted & (predicted >= 0)
        tally = torch.zeros(predicted.shape[1], max(self._classes, 1), device=predicted.device)  # (N, K)
        tally.scatter_add_(1, predicted.clamp_min(0).T, named.T.float())
        return torch.where(named.any(dim=0), tally.argmax(dim=1), -1)


def _member(member: str | Mapping[str, Any] | Oracle) -> Oracle:
    if isinstance(member, Oracle):
        return member
    options = {} if isinstance(member, str) else dict(member)
    name = member if isinstance(member, str) else options.pop("name", None)
    if not isinstance(name, str):
        raise BadPart(f"ensemble: a member is an oracle's name, or a mapping with one and its options, got {member!r}")
    oracle: Oracle = registry.create("oracle", name, options.pop("options", options))
    return oracle


def _is_cross_fitted(oracle: Oracle) -> bool:
    return bool(getattr(oracle, "cross_fitted", False))


def _mean_of(values: Tensor, counted: Tensor) -> Tensor:
    """The mean over the first dimension of those that are counted."""
    weight = counted.to(values.dtype)
    return (values * weight).sum(dim=0) / weight.sum(dim=0).clamp_min(1)
