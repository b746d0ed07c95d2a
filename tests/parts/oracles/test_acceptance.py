from __future__ import annotations

import pytest
import torch

from counterfoil.parts.oracles.scoring import AcceptanceRule

PROBABILITIES = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.4, 0.35, 0.25]])
LABELS = torch.tensor([0, 0, 0])


def test_the_most_probable_class_is_kept() -> None:
    verdicts = AcceptanceRule().decide(PROBABILITIES, LABELS)
    assert verdicts.keeps_label.tolist() == [1, 0, 1]
    assert verdicts.keeps_label.dtype == torch.int8
    assert verdicts.scores.tolist() == pytest.approx([0.5, 0.2, 0.4])
    assert verdicts.predicted.tolist() == [0, 1, 0]


def test_a_margin_asks_for_a_lead() -> None:
    assert AcceptanceRule(margin=0.1).decide(PROBABILITIES, LABELS).keeps_label.tolist() == [1, 0, 0]


@pytest.mark.parametrize(("unsure", "expected"), [("reject", [1, 0, 0]), ("abstain", [1, 0, -1])])
def test_below_the_threshold_it_is_unsure(unsure: str, expected: list[int]) -> None:
    acceptance = AcceptanceRule(threshold=0.45, below_threshold=unsure)  # type: ignore[arg-type]
    assert acceptance.decide(PROBABILITIES, LABELS).keeps_label.tolist() == expected


def test_of_equals_the_first_is_seen() -> None:
    verdicts = AcceptanceRule().decide(torch.tensor([[0.5, 0.5]] * 2), torch.tensor([0, 1]))
    assert verdicts.keeps_label.tolist() == [1, 0]


def test_probabilities_that_are_not_finite_give_a_score_that_readers_refuse() -> None:
    spoiled = PROBABILITIES.clone()
    spoiled[1, 2] = float("nan")
    scores = AcceptanceRule().decide(spoiled, LABELS).scores
    assert scores.isfinite().tolist() == [True, False, True]


def test_a_verdict_reads_nothing_back_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("the host would wait for the GPU here")

    for name in ("__bool__", "item", "tolist", "__float__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    verdicts = AcceptanceRule(threshold=0.2).decide(PROBABILITIES, LABELS)
    monkeypatch.undo()
    assert verdicts.keeps_label.tolist() == [1, 0, 1]
