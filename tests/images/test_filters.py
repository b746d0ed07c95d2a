"""Resizing by products with matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from counterfoil.parts import images
from counterfoil.parts.images import resize, resize_by_products


def gradient(pictures: Tensor, wanted: Tensor) -> Tensor:
    (found,) = torch.autograd.grad((wanted * torch.linspace(-1, 1, wanted.numel()).view_as(wanted)).sum(), pictures)
    return found


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(24, 24), (24, 40), (51, 33), (40, 40), (7, 90)])
def test_products_are_what_interpolation_makes(size: tuple[int, int], mode: str, antialias: bool) -> None:
    pictures = torch.rand(2, 3, 40, 33, generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = functional.interpolate(pictures, size, mode=mode, align_corners=False, antialias=antialias)
    found = resize_by_products(pictures, size, mode=mode, antialias=antialias)
    assert found.shape == exact.shape
    assert torch.allclose(found, exact, atol=2e-6)
    assert torch.allclose(gradient(pictures, found), gradient(pictures, exact), atol=2e-5)


def test_a_picture_is_not_rounded_where_networks_compute_in_half_precision() -> None:
    pictures = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    exact = resize_by_products(pictures, (24, 24), mode="bicubic", antialias=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(resize_by_products(pictures, (24, 24), mode="bicubic", antialias=True), exact)


def test_what_was_kept_without_gradients_serves_where_they_are_taken() -> None:
    with torch.inference_mode():
        resize_by_products(torch.rand(1, 3, 21, 21), (13, 13), mode="bicubic", antialias=True)
    pictures = torch.rand(1, 3, 21, 21, requires_grad=True)
    resize_by_products(pictures, (13, 13), mode="bicubic", antialias=True).sum().backward()
    assert pictures.grad is not None and pictures.grad.sum() == pytest.approx(3 * 13 * 13, rel=1e-4)


class Called(TorchDispatchMode):
    """Notes the names of what is called on whole images."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(args[0], Tensor) and args[0].shape[:2] == (2, 3):
            self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_on_a_card_no_kernel_whose_gradient_has_no_order_touches_pictures(interpolation: str, monkeypatch) -> None:
    monkeypatch.setattr(images, "_filter", images._filter.__wrapped__)  # nothing that is not there is to be kept
    with FakeTensorMode(), Called() as called:
        assert resize(torch.empty(2, 3, 256, 256, device="cuda"), 224, interpolation=interpolation).shape == (2, 3, 224, 224)
    assert called.names and not [name for name in called.names if "upsample" in name]
