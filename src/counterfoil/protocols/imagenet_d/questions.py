"""Two-choice questions to vision-language models, and what their answers come to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.core.spec.imagenet_d import QuestionSpec
from counterfoil.parts.contracts import Chat
from counterfoil.protocols.imagenet_d.answers import read_answer

Order = Literal["shuffled", "truth-first"]


@dataclass(frozen=True)
class Question:
    """The truth and the hardest wrong name, and which of them is named first."""

    truth: str
    wrong: str
    truth_first: bool

    @classmethod
    def drawn(cls, truth: str, wrong: str, image_id: str, *, order: Order, seed: int) -> Question:
        """With the order drawn by the picture's id, or the truth first."""
        coin = hashlib.blake2b(f"{seed}\0{image_id}\0order".encode(), digest_size=1).digest()[0] % 2 == 0
        return cls(truth, wrong, order == "truth-first" or coin)

    @property
    def turned(self) -> Question:
        """The same with the choices in the other order."""
        return Question(self.truth, self.wrong, not self.truth_first)

    def text(self, template: str) -> str:
        """What the model is asked."""
        first, second = (self.truth, self.wrong) if self.truth_first else (self.wrong, self.truth)
        return template.replace("{first}", first).replace("{second}", second)

    def read(self, answer: str, kin: Mapping[str, Sequence[str]]) -> bool | None:
        """Whether the answer is the truth; None where it means neither choice."""
        names = [(name, *kin.get(name, ())) for name in (self.truth, self.wrong)]
        chosen = read_answer(answer, names if self.truth_first else names[::-1])
        return None if chosen is None else (chosen == 0) == self.truth_first


def check_question(text: str) -> None:
    """Refuse a question without its two places."""
    for slot in ("{first}", "{second}"):
        if slot not in text:
            raise BadSpec(f"questions.text: {text!r} has no place for {slot}; write both {{first}} and {{second}}")


def ask(
    chat: Chat,
    pictures: Sequence[Tensor],
    questions: Sequence[Question],
    settings: QuestionSpec,
    *,
    kin: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """One entry a picture: the answer and whether it is right, and the same for the other order if that is asked too."""
    asked = [question.text(settings.text) for question in questions]
    said = _answers(chat, pictures, asked)
    found: list[dict[str, Any]] = []
    for question, answer in zip(questions, said, strict=True):
        found.append({"question": question.text(settings.text), "answer": answer, "right": question.read(answer, kin)})
    if settings.both_orders:
        turned = [question.turned for question in questions]
        again = _answers(chat, pictures, [question.text(settings.text) for question in turned])
        for entry, question, answer in zip(found, turned, again, strict=True):
            entry |= {"answer_turned": answer, "right_turned": question.read(answer, kin)}
    return found


def _answers(chat: Chat, pictures: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
    said = chat.answer(pictures, questions)
    if len(said) != len(questions):
        raise BadPart(f"the model gave {len(said)} answers to {len(questions)} questions")
    return [str(each) for each in said]
