from __future__ import annotations

import torch

from counterfoil.parts.generators.latent import straight_through


def test_the_value_is_exact_and_the_gradient_goes_to_the_carrier() -> None:
    value, carrier = torch.tensor([0.1, 1e-8]), torch.tensor([3e7, -2.0], requires_grad=True)
    seen = straight_through(value, carrier)
    assert torch.equal(seen, value)
    assert torch.equal(torch.autograd.grad((seen * torch.tensor([2.0, 5.0])).sum(), carrier)[0], torch.tensor([2.0, 5.0]))


def test_no_gradient_reaches_the_value() -> None:
    value, carrier = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    gradient = torch.autograd.grad(straight_through(value * 2, carrier).sum(), value, allow_unused=True)[0]
    assert gradient is None
