"""The checks that authors of captioners and rewriters get can fail; those of the package pass them in test_every_source.py."""

from __future__ import annotations

import pytest
from torch import Tensor

from counterfoil.parts.contracts import Caption, Proposals, RewriteRequest, Sample
from counterfoil.testing import check_captioner, check_rewriter


class Forgetful:
    """Breaks both contracts: answers by what it was asked before."""

    asked = 0

    def caption(self, images: Tensor, samples: list[Sample]) -> list[Caption]:
        self.asked += 1
        return [Caption(f"caption {self.asked}") for _ in samples]

    def rewrite(self, requests: list[RewriteRequest]) -> list[Proposals]:
        self.asked += 1
        return [Proposals((f"a dog {self.asked}",)) for _ in requests]


def test_the_checks_can_fail() -> None:
    with pytest.raises(AssertionError, match="own picture alone"):
        check_captioner(Forgetful())
    with pytest.raises(AssertionError, match="own request alone"):
        check_rewriter(Forgetful())
    silent = Forgetful()
    silent.rewrite = lambda requests: [Proposals() for _ in requests]  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="a rejection that says why not"):
        check_rewriter(silent)
