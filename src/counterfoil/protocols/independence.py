"""Check that an oracle is independent of the model it judges.

An oracle that is the model, or is built on the same weights, fails where the model fails: every image that fools the one
fools the other, and the test measures nothing. Hashes find the same weights in the same layout. Tensors are compared one by
one as well, so that a common trunk under two heads, or one network saved by two libraries, is found too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import provenance_of
from counterfoil.parts.weights import modules_of

SHARE = 0.05  # of the smaller one's weights; below it are fixed filters and tables that many networks have alike
SMALLEST = 256  # values; smaller tensors may be equal by chance of their making
MAKERS = ("generator", "editor", "painter")
"""The roles whose parts make images, some of them led by a network that also judges."""
_LOOKED_AT = 64  # values of a tensor that are compared first


def check(model: Any, oracle: Any, *, force: bool = False) -> str | None:
    """Raise BadPart if the oracle is, or shares weights with, the model under test; None if it does not.

    With `force`, the line that would have been the error is given back instead, for the run's records.
    """
    found = same_source(model, oracle) or _shared_note(model, oracle)
    if found is None:
        return None
    if not force:
        raise BadPart(
            f"the oracle is not independent: {found}, so it fails where the model fails; choose another, or set force=true"
        )
    return f"the oracle is not independent: {found}; the run was forced"


def same_source(model: Any, oracle: Any) -> str | None:
    """The sign that both have the very same weights or come from one endpoint, or None."""
    found = _in_common(provenance_of(model), provenance_of(oracle))
    return f"{found} is that of the model under test" if found else None


def caution_later(part: Any, recorded: Mapping[str, str], *, role: str) -> str | None:
    """The caution about a part that is asked later, if its weights or endpoint are those `recorded` of the run's `role`."""
    found = _in_common(recorded, provenance_of(part))
    if found is None:
        return None
    follows = "it judges what it helped to make" if role in MAKERS else "the one fails where the other fails"
    return f"not independent: {found} is that of the run's {role}, so {follows}"


def _in_common(first: Mapping[str, str], second: Mapping[str, str]) -> str | None:
    """The marks that both share, in words."""
    own, its = _marks(first), _marks(second)
    return next((its[mark] for mark in own if mark in its), None)


def shared_weights(first: Any, second: Any) -> float:
    """The share of weights that two parts have in common, of the one with fewer; 0 where either has none to be seen."""
    mine, theirs = _tensors(first), _tensors(second)
    if not mine or not theirs:
        return 0.0
    buckets: dict[tuple[Any, ...], list[Tensor]] = {}
    for tensor in theirs:
        buckets.setdefault(_mark(tensor), []).append(tensor)
    common = sum(tensor.numel() for tensor in mine if any(_equal(tensor, other) for other in buckets.get(_mark(tensor), ())))
    return common / min(sum(each.numel() for each in mine), sum(each.numel() for each in theirs))


def _shared_note(model: Any, oracle: Any) -> str | None:
    share = shared_weights(model, oracle)
    return f"it shares {min(share, 1):.0%} of its weights with the model under test" if share >= SHARE else None


def _marks(told: Mapping[str, str]) -> dict[str, str]:
    """Marks that tell a part's weights or endpoint apart from others, by value; ensembles number theirs."""
    marks = {}
    for key, value in told.items():
        name = key.rpartition(".")[2]
        if name == "weights" and value:
            marks[value] = f"the hash of its weights ({key})"
        elif name == "source" and value.startswith(("http://", "https://")):
            marks[value] = f"its endpoint {value}"
    return marks


def _tensors(part: Any) -> list[Tensor]:
    """The weights worth comparing: floating point, not tiny, not constant; each storage once."""
    found: dict[int, Tensor] = {}
    for module in modules_of(part):
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point() and tensor.numel() >= SMALLEST and tensor.data_ptr() not in found:
                flat = tensor.detach().reshape(-1)
                if not bool((flat == flat[0]).all()):
                    found[tensor.data_ptr()] = flat
    return list(found.values())


def _mark(flat: Tensor) -> tuple[Any, ...]:
    """A tensor's size and some of its values, so that only likely pairs are compared in full."""
    steps = torch.arange(_LOOKED_AT, device=flat.device) * (flat.numel() - 1) // (_LOOKED_AT - 1)
    return (flat.numel(), *flat[steps].float().cpu().tolist())


def _equal(first: Tensor, second: Tensor) -> bool:
    return bool(torch.equal(first.float().cpu(), second.float().cpu()))
