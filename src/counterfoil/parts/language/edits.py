"""Asks a rewriter for edits and checks what it says. What an LANCE run calls."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Rejection, Rewriter, Wish
from counterfoil.parts.language.checker import Checker, Rewritten
from counterfoil.parts.language.factors import check_factor

__all__ = ["Checker", "Rewritten", "rewrite"]


def rewrite(rewriter: Rewriter, checker: Checker, wishes: Sequence[Wish], class_names: Sequence[str]) -> list[Rewritten]:
    """One answer a wish: the edits that hold, and every proposal that does not with its reason.

    Captions that cannot be rewritten, because they are empty or longer than the editor reads, are not asked about.
    """
    answers: dict[int, Rewritten] = {}
    asked: list[int] = []
    for at, wish in enumerate(wishes):
        problem = checker.caption_problem(wish.caption)
        if problem is None:
            asked.append(at)
            check_factor(wish.factor)
        else:
            answers[at] = Rewritten(rejections=(Rejection(wish.factor, "", *problem),))
    found = rewriter.rewrite([wishes[at] for at in asked]) if asked else []
    if len(found) != len(asked):
        raise BadPart(f"rewriter: gave {len(found)} answers to {len(asked)} wishes; it has to give one each")
    for at, proposals in zip(asked, found, strict=True):
        wish = wishes[at]
        checked = checker.check(wish.caption, wish.factor, proposals.captions, class_names[at])
        rejections = (*proposals.rejections, *checked.rejections)
        if not checked.edits and not rejections:
            rejections = (Rejection(wish.factor, "", "no-idea"),)
        answers[at] = Rewritten(checked.edits, rejections)
    return [answers[at] for at in range(len(wishes))]
