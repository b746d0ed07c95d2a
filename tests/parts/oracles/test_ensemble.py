from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from counterfoil.parts import registry
from counterfoil.parts.contracts import Oracle
from counterfoil.parts.oracles import ensemble
from counterfoil.parts.oracles.ensemble import EnsembleOracle
from counterfoil.parts.oracles.scoring import AcceptanceRule
from counterfoil.testing import check_oracle
from tests.parts.created import clip_oracle, ensemble_oracle, openclip_oracle
from tests.parts.oracles.conftest import Fixed, Saying

ALL_VOTES = list(itertools.product([1, 0, -1], repeat=3))  # every way three oracles can answer
IMAGES, LABELS = torch.zeros(len(ALL_VOTES), 3, 4, 4), torch.zeros(len(ALL_VOTES), dtype=torch.long)


def members() -> list[Oracle]:
    """Three oracles that together give every combination of answers, one per row."""
    count = len(ALL_VOTES)
    scores = [[0.9] * count, [0.6] * count, [0.3] * count]
    return [Saying([votes[number] for votes in ALL_VOTES], scores[number], [number] * count) for number in range(3)]


def by_hand(votes: tuple[int, ...], rule: str) -> int:
    spoken = [vote for vote in votes if vote != -1]
    if not spoken:
        return -1
    if rule == "unanimous":
        return int(all(spoken))
    return int(sum(spoken) > len(spoken) - sum(spoken))


@pytest.mark.parametrize("rule", ["unanimous", "majority"])
def test_votes_are_counted(rule: str) -> None:
    oracle = EnsembleOracle(members(), rule=rule).bind(["a", "b", "c"])  # type: ignore[arg-type]
    verdicts = oracle.judge(IMAGES, LABELS)
    assert verdicts.keeps_label.tolist() == [by_hand(votes, rule) for votes in ALL_VOTES]
    assert verdicts.keeps_label.dtype == torch.int8


def test_the_score_is_the_mean_of_those_who_answer() -> None:
    verdicts = EnsembleOracle(members(), rule="majority").bind(["a", "b", "c"]).judge(IMAGES, LABELS)
    expected = []
    for votes in ALL_VOTES:
        counted = [score for score, vote in zip((0.9, 0.6, 0.3), votes, strict=True) if vote != -1] or [0.9, 0.6, 0.3]
        expected.append(sum(counted) / len(counted))
    assert verdicts.scores.tolist() == pytest.approx(expected)


def test_the_class_seen_is_the_one_named_most() -> None:
    rows = [[2, 1, 2], [0, 1, 2], [2, -1, -1], [-1, -1, -1]]
    oracles = [Saying([0] * 4, [0.5] * 4, [row[number] for row in rows]) for number in range(3)]
    verdicts = (
        EnsembleOracle(oracles, rule="majority").bind(["a", "b", "c"]).judge(torch.zeros(4, 3, 4, 4), torch.zeros(4).long())
    )
    assert verdicts.predicted.tolist() == [2, 0, 2, -1]


def test_the_mean_rule_averages_probabilities() -> None:
    one = Fixed([[0.7, 0.2, 0.1], [0.6, 0.4, 0.0]])
    other = Fixed([[0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    verdicts = (
        EnsembleOracle([one, other], rule="mean").bind(["a", "b", "c"]).judge(torch.zeros(2, 3, 4, 4), torch.tensor([1, 1]))
    )
    assert verdicts.scores.tolist() == pytest.approx([0.5, 0.3])
    assert verdicts.predicted.tolist() == [1, 0]
    assert verdicts.keeps_label.tolist() == [1, 0]


def test_the_mean_rule_leaves_out_who_abstains() -> None:
    unsure = AcceptanceRule(threshold=0.5, below_threshold="abstain")
    one = Fixed([[0.6, 0.4], [0.45, 0.55], [0.45, 0.45]], unsure)
    other = Fixed([[0.45, 0.45], [0.7, 0.3], [0.4, 0.4]], unsure)
    verdicts = EnsembleOracle([one, other], rule="mean").bind(["a", "b"]).judge(torch.zeros(3, 3, 4, 4), torch.zeros(3).long())
    assert verdicts.keeps_label.tolist() == [1, 1, -1]
    assert verdicts.scores.tolist() == pytest.approx([0.6, 0.575, 0.5])


def test_the_mean_rule_weighs_every_member_alike() -> None:
    """Probabilities that do not add up to one, as SigLIP's, are brought to shares first."""
    one, other = Fixed([[0.02, 0.06]]), Fixed([[0.6, 0.4]])
    verdicts = EnsembleOracle([one, other], rule="mean").bind(["a", "b"]).judge(torch.zeros(1, 3, 4, 4), torch.tensor([0]))
    assert verdicts.scores.tolist() == pytest.approx([(0.25 + 0.6) / 2])


def test_a_threshold_holds_for_the_mean() -> None:
    oracle = ensemble_oracle(
        members=[Fixed([[0.6, 0.4]]), Fixed([[0.6, 0.4]])], rule="mean", threshold=0.7, below_threshold="abstain"
    )
    assert oracle.bind(["a", "b"]).judge(torch.zeros(1, 3, 4, 4), torch.tensor([0])).keeps_label.tolist() == [-1]


def test_members_are_found_by_name_with_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(registry, "create", lambda *arguments: asked.append(arguments) or Fixed([[0.5, 0.5]]))
    members = ["clip:a", {"name": "clip:b", "margin": 0.1}, {"name": "clip:c", "options": {"margin": 0.2}}]
    ensemble.ensemble_oracle("", ensemble.EnsembleOptions(members=members, rule="majority"))
    assert asked == [("oracle", "clip:a", {}), ("oracle", "clip:b", {"margin": 0.1}), ("oracle", "clip:c", {"margin": 0.2})]


@pytest.mark.parametrize("rule", ["unanimous", "majority", "mean"])
def test_the_oracles_contract_is_kept(rule: str, clip_folder: Path, openclip_folder: Path) -> None:
    both = [clip_oracle(str(clip_folder)), openclip_oracle(str(openclip_folder))]
    check_oracle(ensemble_oracle(members=both, rule=rule), ["red boot", "blue bag", "hat"], size=48)  # type: ignore[arg-type]


def test_provenance_numbers_the_members() -> None:
    class Known(Fixed):
        def provenance(self) -> dict[str, str]:
            return {"weights": "abc"}

    oracle = EnsembleOracle([Known([[1.0]]), Fixed([[1.0]])])
    assert oracle.provenance() == {"rule": "unanimous", "0.weights": "abc"}
