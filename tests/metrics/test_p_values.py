"""P-values are printed with the digits that matter, the same way everywhere."""

from __future__ import annotations

import pytest

from counterfoil.metrics.p_values import p_is, p_text


@pytest.mark.parametrize(
    ("p", "table", "sentence"),
    [
        (0.0, "< 0.001", "p < 0.001"),
        (8e-5, "< 0.001", "p < 0.001"),
        (0.001, "0.001", "p = 0.001"),
        (0.0449, "0.045", "p = 0.045"),
        (0.31, "0.31", "p = 0.31"),
        (1.0, "1.00", "p = 1.00"),
    ],
)
def test_digits(p: float, table: str, sentence: str) -> None:
    assert (p_text(p), p_is(p)) == (table, sentence)
