"""Perplexity against its definition, computed token by token."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from counterfoil.parts.language.perplexity import Perplexity
from tests.language.small_models import llama

pytestmark = pytest.mark.xdist_group("llm")
TEXTS = ["a photo of a red boot on a beach", "boot a of", "a photo of a blue wool dress in a city next to a ball in fog", ""]


def test_it_is_the_exponential_of_the_mean_surprise(tmp_path: Path) -> None:
    scorer = Perplexity(str(llama(tmp_path)))
    found = scorer.of(TEXTS)
    for text, value in zip(TEXTS[:3], found, strict=False):
        tokens = scorer.tokenizer(text).input_ids  # start token and words
        surprise = []
        for at in range(1, len(tokens)):
            with torch.no_grad():
                logits = scorer.model(input_ids=torch.tensor([tokens[:at]])).logits[0, -1]
            surprise.append(-float(logits.log_softmax(dim=-1)[tokens[at]]))
        assert value == pytest.approx(math.exp(sum(surprise) / len(surprise)), rel=1e-4)
    assert math.isnan(found[3])


def test_a_number_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    scorer = Perplexity(str(llama(tmp_path)))
    assert scorer.of(TEXTS[:3]) == [scorer.of([text])[0] for text in TEXTS[:3]]
    assert scorer.of([]) == []
