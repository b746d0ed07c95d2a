"""The gate's kernel, run line by line by Triton's interpreter in a process where that was asked for from the start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHECK = """
import torch
from counterfoil.parts.fast.fused import gated
for kind, near in ((torch.float32, 1e-5), (torch.bfloat16, 2**-7)):  # the interpreter cuts off
    x = torch.randn(3, 37, 160, generator=torch.Generator().manual_seed(0)).to(kind)
    value, gate = x.double().chunk(2, dim=-1)
    found, wanted = gated(x), value * torch.nn.functional.gelu(gate)
    assert found.dtype == kind
    torch.testing.assert_close(found.double(), wanted, rtol=near, atol=1e-6)
"""


def test_it_is_one_half_times_gelu_of_the_other() -> None:
    pytest.importorskip("triton")
    asked = subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr[-2000:]
