"""A vision-language model as an oracle, asked yes or no, or to choose."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Movable, Trait, Verdicts
from counterfoil.parts.encoders.clip import phrases
from counterfoil.parts.language.vision_language import VisionLanguageModel, VlmWeights
from counterfoil.parts.oracles.scoring import UNBOUND, AcceptanceRule

Mode = Literal["yes-no", "choice"]
QUESTIONS: dict[str, str] = {
    "yes-no": "Does this image show a {class}? Answer with yes or no.",
    "choice": "Which of these is the main object in this image?\n{choices}\nAnswer with its letter.",
}
YES, NO = ("yes", "Yes", "YES", " yes", " Yes"), ("no", "No", "NO", " no", " No")
MAX_CHOICES = 26


@dataclass(frozen=True)
class VlmOptions(AcceptanceRule, VlmWeights):
    mode: Mode = "yes-no"
    question: str | None = None
    choices: int = 4
    rotations: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        place = "{class}" if self.mode == "yes-no" else "{choices}"
        if place not in self.template:
            raise BadPart(f"vlm: the question {self.template!r} has no place for the class; write '{place}' there")
        if not 2 <= self.choices <= MAX_CHOICES or self.rotations < 1:
            given = f"got {self.choices} and {self.rotations}"
            raise BadPart(f"vlm: choices are from 2 to {MAX_CHOICES} and rotations at least 1, {given}")

    @property
    def template(self) -> str:
        """The question that is asked."""
        return self.question or QUESTIONS[self.mode]


def vlm_oracle(name: str, options: VlmOptions) -> VlmOracle:
    """A vision-language model from transformers, asked yes or no or to choose: vlm:FOLDER or vlm:llava-hf/llava-1.5-7b-hf.

    `mode: yes-no` asks `question` with the label at `{class}`; `mode: choice` shows the label among `choices` classes at
    `{choices}`, the others and their order drawn once per label, and asks `rotations` times with the order rotated,
    averaging. The probabilities of the first token of each answer are compared. `threshold`, `margin` and `below_threshold`
    are those of the oracle `classifier`. `prompt`, with `{question}` in it, replaces the model's chat template.
    """
    return VlmOracle(VisionLanguageModel.load(name, options), options)


class VlmOracle(Movable):
    """Keeps a label when the model says yes to it, or chooses it. Its score is the chance of that answer."""

    def __init__(self, model: VisionLanguageModel, options: VlmOptions) -> None:
        self.model = model
        self.options = options
        self.acceptance = options.alone
        self._words: list[str] = []

    def bind(self, classes: Sequence[str]) -> VlmOracle:
        bound = copy(self)
        bound._words = phrases(classes)
        return bound

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        if not self._words:
            raise BadPart(UNBOUND)
        ask = self._agrees if self.options.mode == "yes-no" else self._chooses
        chances = torch.stack([ask(image, label) for image, label in zip(images, labels.tolist(), strict=True)]).to(labels.device)
        if self.options.mode == "choice":
            return self.acceptance.decide(chances, labels)
        verdicts = self.acceptance.decide(chances, torch.zeros_like(labels))
        seen = torch.where(verdicts.predicted == 0, labels, -1)  # who says no does not say what it is
        return Verdicts(verdicts.keeps_label, verdicts.scores, seen)

    def describe(self) -> list[Trait]:
        decided = "the default" if self.options.question is None else "the options"
        return [Trait("question", " ".join(self.options.template.split()), decided), self.acceptance.describe()]

    def provenance(self) -> dict[str, str]:
        asked = {"mode": self.options.mode, "question": self.options.template}
        counts = {"choices": str(self.options.choices), "rotations": str(self.options.rotations)}
        counts = counts if self.options.mode == "choice" else {}
        return {**self.model.provenance(), **asked, **counts}

    def _agrees(self, image: Tensor, label: int) -> Tensor:
        """The chances of yes and no.  # → (2,)"""
        return self.model.answer_probabilities(
            image, self.options.template.replace("{class}", self._words[label]), (YES, NO)
        ).cpu()

    def _chooses(self, image: Tensor, label: int) -> Tensor:
        """The chances of the classes, none for those that were not shown.  # → (K,)"""
        offered = self.choices(label)
        letters = string.ascii_uppercase[: len(offered)]
        total = torch.zeros(len(self._words))
        for turn in range(self.options.rotations):
            at = turn * len(offered) // self.options.rotations
            order = offered[at:] + offered[:at]
            listed = "\n".join(f"{letter}. {self._words[number]}" for letter, number in zip(letters, order, strict=True))
            answers = [(letter, f" {letter}") for letter in letters]
            chances = self.model.answer_probabilities(image, self.options.template.replace("{choices}", listed), answers).cpu()
            total[torch.tensor(order)] += chances / self.options.rotations
        return total

    def choices(self, label: int) -> list[int]:
        """The classes that are offered for a label, in their order: the same every time."""
        drawn = random.Random(f"{label} of {'|'.join(self._words)}")
        others = [number for number in range(len(self._words)) if number != label]
        offered = [label, *drawn.sample(others, min(self.options.choices - 1, len(others)))]
        drawn.shuffle(offered)
        return offered
