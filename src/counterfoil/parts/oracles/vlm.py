"""A vision-language model as an oracle, asked yes or no, or to choose."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from copy import copy
from typing import Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.encoders.prompts import phrases
from counterfoil.parts.oracles.acceptance import MOST_PROBABLE, Acceptance, Unsure
from counterfoil.parts.oracles.answers import Answerer, load
from counterfoil.parts.pretrained import Pretrained

Ask = Literal["yes-no", "choice"]
QUESTIONS: dict[str, str] = {
    "yes-no": "Does this picture show a {class}? Answer with yes or no.",
    "choice": "Which of these is the main object in this picture?\n{choices}\nAnswer with its letter.",
}
YES, NO = ("yes", "Yes", "YES", " yes", " Yes"), ("no", "No", "NO", " no", " No")
MOST_CHOICES = 26


def vlm_oracle(
    name: str,
    *,
    ask: Ask = "yes-no",
    question: str | None = None,
    choices: int = 4,
    turns: int = 1,
    threshold: float = 0.0,
    margin: float = 0.0,
    unsure: Unsure = "reject",
    prompt: str | None = None,
    dtype: str = "float32",
    revision: str | None = None,
    sha256: str | None = None,
) -> VlmOracle:
    """A vision-language model from transformers, asked yes or no or to choose: vlm:FOLDER or vlm:llava-hf/llava-1.5-7b-hf.

    `ask: yes-no` asks `question` with the label at `{class}`; `ask: choice` shows the label among `choices` classes at
    `{choices}`, the others and their order drawn once a label, and asks `turns` times with the order turned, averaging.
    Compared are the chances of the first token of each answer. `threshold`, `margin` and `unsure` are those of the oracle
    `clip`. `prompt`, with `{question}` in it, stands in for the model's chat template.
    """
    source = Pretrained("vlm", name, revision=revision, example="llava-hf/llava-1.5-7b-hf")
    if sha256 is not None:
        source.check_hash(sha256)
    acceptance = Acceptance(threshold=threshold, margin=margin, unsure=unsure)
    answerer = load(source, prompt=prompt, dtype=dtype)
    return VlmOracle(answerer, ask=ask, question=question, choices=choices, turns=turns, acceptance=acceptance)


class VlmOracle:
    """Keeps a label when the model says yes to it, or chooses it. Its score is the chance of that answer."""

    def __init__(
        self,
        answerer: Answerer,
        *,
        ask: Ask = "yes-no",
        question: str | None = None,
        choices: int = 4,
        turns: int = 1,
        acceptance: Acceptance = MOST_PROBABLE,
    ) -> None:
        if ask not in get_args(Ask):
            raise BadPart(f"vlm: ask is one of {', '.join(get_args(Ask))}, got {ask!r}")
        place = "{class}" if ask == "yes-no" else "{choices}"
        self.question = question or QUESTIONS[ask]
        if place not in self.question:
            raise BadPart(f"vlm: the question {self.question!r} has no place for the class; write '{place}' there")
        if not 2 <= choices <= MOST_CHOICES or turns < 1:
            raise BadPart(f"vlm: choices are from 2 to {MOST_CHOICES} and turns at least 1, got {choices} and {turns}")
        self.answerer = answerer
        self.ask = ask
        self.choices = choices
        self.turns = turns
        self.acceptance = acceptance
        self._words: list[str] = []

    def bind(self, classes: Sequence[str]) -> VlmOracle:
        """The oracle with the words for `classes`."""
        bound = copy(self)
        bound._words = phrases(classes)
        return bound

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts on whether each picture shows its label.  # (N, 3, H, W), (N,) int64"""
        if not self._words:
            raise BadPart("oracle: bind it to class names before it judges")
        ask = self._agrees if self.ask == "yes-no" else self._chooses
        chances = torch.stack([ask(image, label) for image, label in zip(images, labels.tolist(), strict=True)]).to(labels.device)
        if self.ask == "choice":
            return self.acceptance.decide(chances, labels)
        verdicts = self.acceptance.decide(chances, torch.zeros_like(labels))
        seen = torch.where(verdicts.predicted == 0, labels, -1)  # who says no does not say what it is
        return Verdicts(verdicts.keeps_label, verdicts.scores, seen)

    def to(self, device: torch.device | str) -> VlmOracle:
        """The same oracle, moved to a device."""
        self.answerer.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The model's weights and what it is asked."""
        asked = {"ask": self.ask, "question": self.question}
        counts = {"choices": str(self.choices), "turns": str(self.turns)} if self.ask == "choice" else {}
        return {**self.answerer.provenance(), **asked, **counts}

    def _agrees(self, image: Tensor, label: int) -> Tensor:
        """The chances of yes and no.  # → (2,)"""
        return self.answerer.chances(image, self.question.replace("{class}", self._words[label]), (YES, NO)).cpu()

    def _chooses(self, image: Tensor, label: int) -> Tensor:
        """The chances of the classes, none for those that were not shown.  # → (K,)"""
        shown = self.shown(label)
        letters = string.ascii_uppercase[: len(shown)]
        total = torch.zeros(len(self._words))
        for turn in range(self.turns):
            at = turn * len(shown) // self.turns
            order = shown[at:] + shown[:at]
            listed = "\n".join(f"{letter}. {self._words[number]}" for letter, number in zip(letters, order, strict=True))
            answers = [(letter, f" {letter}") for letter in letters]
            chances = self.answerer.chances(image, self.question.replace("{choices}", listed), answers).cpu()
            total[torch.tensor(order)] += chances / self.turns
        return total

    def shown(self, label: int) -> list[int]:
        """The classes that are offered for a label, in their order: the same every time."""
        drawn = random.Random(f"{label} of {'|'.join(self._words)}")
        others = [number for number in range(len(self._words)) if number != label]
        shown = [label, *drawn.sample(others, min(self.choices - 1, len(others)))]
        drawn.shuffle(shown)
        return shown
