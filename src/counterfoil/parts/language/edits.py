"""Asks a rewriter for edits and checks what it says. What an LANCE run calls."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Rejection, Rewriter, RewriteRequest
from counterfoil.parts.language.checker import Checker, Rewritten
from counterfoil.parts.language.factors import check_factor

__all__ = ["Checker", "Rewritten", "rewrite"]


def rewrite(
    rewriter: Rewriter, checker: Checker, requests: Sequence[RewriteRequest], class_names: Sequence[str]
) -> list[Rewritten]:
    """One answer a request: the edits that hold, and every proposal that does not with its reason.

    Captions that cannot be rewritten, because they are empty or longer than the editor reads, are not asked about.
    """
    answers: dict[int, Rewritten] = {}
    asked: list[int] = []
    for at, request in enumerate(requests):
        problem = checker.caption_problem(request.caption)
        if problem is None:
            asked.append(at)
            check_factor(request.factor)
        else:
            answers[at] = Rewritten(rejections=(Rejection(request.factor, "", *problem),))
    found = rewriter.rewrite([requests[at] for at in asked]) if asked else []
    if len(found) != len(asked):
        raise BadPart(f"rewriter: gave {len(found)} answers to {len(asked)} requests; it has to give one each")
    for at, proposals in zip(asked, found, strict=True):
        request = requests[at]
        checked = checker.check(request.caption, request.factor, proposals.captions, class_names[at])
        rejections = (*proposals.rejections, *checked.rejections)
        if not checked.edits and not rejections:
            rejections = (Rejection(request.factor, "", "no-idea"),)
        answers[at] = Rewritten(checked.edits, rejections)
    return [answers[at] for at in range(len(requests))]
