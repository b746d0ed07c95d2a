"""A real vision-language model class, small and with random weights, that answers in words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil.core.errors import BadPart
from counterfoil.parts import registry
from tests.parts.oracles.small_vlm import save_vlm


@pytest.mark.xdist_group("vlm")
def test_answers_are_words_and_do_not_hang_on_their_neighbours(tmp_path: Path) -> None:
    chat = registry.create("chat", f"vlm:{save_vlm(tmp_path)}", {"max_tokens": 4})
    pictures = [torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    questions = ["which of these is the main object ? boot , bag", "a boot or a dress", "does this image show a bag ?"]
    together = chat.answer(pictures, questions)
    assert len(together) == 3 and all(isinstance(text, str) and len(text.split()) <= 4 for text in together)
    assert not any("which" in text and "main" in text for text in together)  # the question is not part of the answer
    assert chat.answer(pictures[1:2], questions[1:2]) == together[1:2]
    assert chat.provenance()["max_tokens"] == "4"
    with pytest.raises(BadPart, match="at least 1"):
        registry.create("chat", f"vlm:{tmp_path}", {"max_tokens": 0})
