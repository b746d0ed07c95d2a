"""People as an oracle: it says nothing now, and what they answered once they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadPart
from counterfoil.core.tables import read_table
from counterfoil.parts import images as pictures
from counterfoil.parts import labels as names
from counterfoil.parts.contracts import Trait, Verdicts
from counterfoil.parts.oracles.scoring import UNBOUND
from counterfoil.parts.weights import file_sha256

_YES, _NO = {"1", "yes", "true", "keep", "kept"}, {"0", "no", "false", "reject", "rejected"}
_COLUMNS = ("picture", "label", "answer")

Answers = Mapping[tuple[str, str], bool]
"""Yes or no for an image, by the hash of its pixels, and a class, by its name as names are compared."""


def human_oracle(answers: str = "") -> HumanOracle:
    """People who answer later: human: abstains on every image, human:FILE.csv gives the answers there are by now.

    An image that only people can judge is made and counts as pending until they have. The file has the columns `picture`
    (SHA-256 of its 8-bit RGB pixels), `label` (the class asked about) and `answer` (yes or no, or nothing yet); where people
    disagree, most of them decide, and a tie stays open.
    """
    return HumanOracle(_read(Path(answers).expanduser()) if answers else {}, file=Path(answers) if answers else None)


class HumanOracle:
    """People's answers about images they have seen; abstains on all others."""

    def __init__(self, answers: Answers, *, file: Path | None = None) -> None:
        self._answers = answers
        self._file = file
        self._classes: list[str] = []

    def bind(self, classes: Sequence[str]) -> HumanOracle:
        bound = copy(self)
        bound._classes = [names.key(name) for name in classes]
        return bound

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """The answers of people; -1 where there is none, with a score of 0.  # (N, 3, H, W), (N,) int64"""
        if not self._classes:
            raise BadPart(UNBOUND)
        pairs = zip(images, labels.tolist(), strict=True) if self._answers else ()
        answers = [self._answers.get((pictures.digest(image), self._classes[label]), -1) for image, label in pairs]
        keeps = torch.tensor(answers or [-1] * len(images), device=labels.device).to(torch.int8)
        return Verdicts(keeps, (keeps == 1).float(), torch.where(keeps == 1, labels, -1))

    def describe(self) -> list[Trait]:
        known = f"answers for {len(self._answers)} images and classes" if self._answers else "no answers yet"
        return [Trait("rule", f"people decide; {known}; abstains on all others", "the file" if self._file else "the default")]

    def provenance(self) -> dict[str, str]:
        return {} if self._file is None else {"answers": file_sha256(self._file.expanduser())}


def _read(path: Path) -> Answers:
    votes: Counter[tuple[str, str]] = Counter()
    for line, row in read_table(path, _COLUMNS, what="answers"):
        answer = row["answer"].casefold()
        if answer and answer not in _YES | _NO:
            raise BadData(f"{path}, line {line}: the answer is yes or no, got {row['answer']!r}")
        votes[row["picture"].lower(), names.key(row["label"])] += (answer in _YES) - (answer in _NO)
    return {key: total > 0 for key, total in votes.items() if total != 0}
