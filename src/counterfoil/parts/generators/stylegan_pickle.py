"""Makes safetensors of a published StyleGAN-XL, a pickle that carries its own programs, without running any of them.

    python -m counterfoil.parts.generators.stylegan_pickle imagenet128.pkl imagenet128.safetensors

Classes of the libraries that such files name become empty stand-ins that keep what was stored in them; tensors are read by
`torch.load(weights_only=True)`; anything else is refused by name. Only the averaged generator is kept.
"""

from __future__ import annotations

import argparse
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadWeights, CounterfoilError, one_line
from counterfoil.parts.generators.stylegan_xl import SETTINGS, LayerSettings, Settings

LIBRARIES = ("torch", "torchvision", "timm", "numpy", "dnnlib", "torch_utils", "training", "pg_modules", "feature_networks")
"""Packages whose classes and functions become stand-ins; none of them is imported for it."""


class StandIn:
    """Keeps an object's or a call's arguments and state, and does nothing."""

    def __new__(cls, *given: Any, **named: Any) -> StandIn:
        made = super().__new__(cls)
        made.given, made.state = given, {}
        return made

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given: tuple[Any, ...]
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state


class EasyDict(dict[str, Any]):
    """A dictionary of the authors, which is stored as one."""


def _number_type(code: Any, *rest: Any) -> StandIn:
    return StandIn(str(code))


def _type_of(found: Any) -> np.dtype[Any]:
    code = found.given[0] if isinstance(found, StandIn) else ""
    if code not in ("f4", "f8", "i4", "i8", "b1"):
        raise pickle.UnpicklingError(f"a number of the type {code!r}")
    return np.dtype(code)


class Array(StandIn):
    """A NumPy array of plain numbers, whose state is its shape, type, order and bytes."""

    @property
    def values(self) -> list[Any]:
        """The numbers in a row."""
        _, _, kind, _, data = self.state
        return list(np.frombuffer(data, _type_of(kind)).tolist())


INERT: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, size, stride, *rest: torch._utils._rebuild_tensor(
        storage, offset, size, stride
    ),
    ("torch._utils", "_rebuild_parameter"): lambda data, *rest: data,
    ("torch.storage", "_load_from_bytes"): lambda data: torch.load(io.BytesIO(data), map_location="cpu", weights_only=True),
    ("dnnlib.util", "EasyDict"): EasyDict,
    **{
        (module, name): made
        for module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
        for name, made in {
            "dtype": _number_type,
            "_reconstruct": lambda *given: Array(),
            "scalar": lambda kind, data=b"\0" * 8: np.frombuffer(data, _type_of(kind))[0].item(),
        }.items()
    },
}


class InertUnpickler(pickle.Unpickler):
    """Reads what a pickle stores without importing or running anything that it names."""

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in for the class or function; UnpicklingError for what such a file does not need."""
        if (found := INERT.get((module, name))) is not None:
            return found
        if module.partition(".")[0] in LIBRARIES and "." not in name:
            return type(name, (StandIn,), {})
        raise pickle.UnpicklingError(f"it names {module}.{name}, which a StyleGAN-XL does not need")


def read_pickle(path: Path) -> tuple[dict[str, Tensor], Settings]:
    """The tensors and settings of the averaged generator in a published file; nothing in the file is run."""
    try:
        with path.open("rb") as file:
            content = InertUnpickler(file).load()
        if not isinstance(content, Mapping) or "G_ema" not in content:
            raise BadWeights("has no G_ema, the averaged generator")
        return _generator(_state(content["G_ema"]))
    except OSError as error:
        raise BadWeights(f"{path}: cannot be read ({error.strerror})") from None
    except BadWeights as error:
        raise BadWeights(f"{path}: {error}; nothing in it was run") from None
    except Exception as error:  # a pickle can fail in any way; nothing of it is run
        raise BadWeights(f"{path}: not a StyleGAN-XL ({one_line(error, 160)}); nothing in it was run") from None


def _state(found: Any) -> Mapping[str, Any]:
    """The state of an object, stored together with its program as the authors do, or as PyTorch does."""
    if isinstance(found, StandIn):
        meta = found.given[0] if len(found.given) == 1 else None
        state = meta.get("state") if isinstance(meta, Mapping) else found.state
        if isinstance(state, Mapping):
            return state
    raise BadWeights("a module is stored in no known way")


def _generator(generator: Mapping[str, Any]) -> tuple[dict[str, Tensor], Settings]:
    modules = generator["_modules"]
    synthesis, mapping = _state(modules["synthesis"]), _state(modules["mapping"])
    first = _state(synthesis["_modules"]["input"])
    tensors = {"w_avg": mapping["_buffers"]["w_avg"], **_tensors(first, "input.")}
    layers = []
    for number, name in enumerate(synthesis["layer_names"]):
        layer = _state(synthesis["_modules"][name])
        tensors |= _tensors(layer, f"layers.{number}.")
        clamp = layer["conv_clamp"]
        layers.append(
            LayerSettings(
                rgb=bool(layer["is_torgb"]),
                up=int(layer["up_factor"]),
                down=int(layer["down_factor"]),
                padding=tuple(map(int, layer["padding"])),  # type: ignore[arg-type]
                clamp=None if clamp is None else float(clamp),
            )
        )
    settings = Settings(
        size=int(synthesis["img_resolution"]),
        output_scale=float(synthesis["output_scale"]),
        input_size=int(first["size"].values[0]),
        sampling_rate=float(first["sampling_rate"]),
        bandwidth=float(first["bandwidth"]),
        layers=tuple(layers),
    )
    return {name: tensor.detach().float().contiguous() for name, tensor in tensors.items()}, settings


def _tensors(layer: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    wanted = ("weight", "bias", "transform", "freqs", "phases", "magnitude_ema", "up_filter", "down_filter")
    held = {**layer["_parameters"], **layer["_buffers"]}
    affine = _state(layer["_modules"]["affine"])["_parameters"]
    found = {f"{prefix}{name}": held[name] for name in wanted if isinstance(held.get(name), Tensor)}
    return {**found, **{f"{prefix}affine.{name}": affine[name] for name in ("weight", "bias")}}


def main() -> None:
    """Convert one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pickle", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    from safetensors.torch import save_file

    try:
        tensors, settings = read_pickle(given.pickle)
    except CounterfoilError as error:
        parser.exit(1, f"{error}\n")
    save_file(tensors, given.out, {SETTINGS: settings.write()})
    print(f"{given.out}: {settings.size} × {settings.size} pixels, {len(settings.layers)} layers, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
