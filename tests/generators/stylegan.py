"""A small StyleGAN-XL of random weights: sizes and filters as in the paper on StyleGAN3 (appendices B and C), and its pickle."""

from __future__ import annotations

import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import firwin
from torch import Tensor, nn

from tests.generators.named_weights import uniform

SIZE, LAYERS, CRITICAL, MARGIN, WIDTH, CLASSES = 16, 4, 2, 6, 5, 3
FIRST_CUTOFF, FIRST_STOPBAND, TAPS = 2.0, 2**2.1, 6


def low_pass(taps: int, cutoff: float, width: float, rate: float) -> Tensor | None:
    """A Kaiser filter; none for one tap."""
    return None if taps == 1 else torch.tensor(firwin(taps, cutoff, width=width, fs=rate), dtype=torch.float32)


def values(name: str, *shape: int) -> Tensor:
    """Weights of unit variance that follow from their name."""
    return (uniform(1, name, *shape)[0] * 2 - 1) * 3**0.5


def design() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Attributes of the input and of every layer, by the formulas for cutoffs, stopbands, rates and sizes."""
    last = SIZE / 2
    exponents = np.minimum(np.arange(LAYERS + 1) / (LAYERS - CRITICAL), 1)
    cutoffs = FIRST_CUTOFF * (last / FIRST_CUTOFF) ** exponents
    stopbands = FIRST_STOPBAND * (last * 2**0.3 / FIRST_STOPBAND) ** exponents
    rates = 2 ** np.ceil(np.log2(np.minimum(stopbands * 2, SIZE)))
    halves = np.maximum(stopbands, rates / 2) - cutoffs
    sizes = rates + MARGIN * 2
    sizes[-2:] = SIZE
    channels = [8] * LAYERS + [3]
    layers = []
    for number in range(LAYERS + 1):
        before, rgb = max(number - 1, 0), number == LAYERS
        kernel = 1 if rgb else 3
        rate = max(rates[before], rates[number]) * (1 if rgb else 2)
        up, down = int(rate / rates[before]), int(rate / rates[number])
        up_taps, down_taps = (TAPS * each if each > 1 and not rgb else 1 for each in (up, down))
        total = (sizes[number] - 1) * down + 1 - (sizes[before] + kernel - 1) * up + up_taps + down_taps - 2
        low = int((total + up) // 2)
        layers.append(
            {
                "is_torgb": rgb, "up_factor": up, "down_factor": down, "conv_clamp": 256, "conv_kernel": kernel,
                "padding": [low, int(total - low)] * 2, "channels": (channels[before], channels[number]),
                "up_filter": low_pass(up_taps, cutoffs[before], halves[before] * 2, rate),
                "down_filter": low_pass(down_taps, cutoffs[number], halves[number] * 2, rate),
            }
        )  # fmt: skip
    first = {"size": np.broadcast_to(np.asarray(int(sizes[0])), [2]), "sampling_rate": rates[0], "bandwidth": cutoffs[0]}
    return first, layers


def persistent(modules: dict[str, Any], parameters: dict[str, Tensor], buffers: dict[str, Any], **state: Any) -> Any:
    """An object as the authors store theirs: with the source of its class and its state."""
    state |= {
        "training": False,
        "_modules": OrderedDict(modules),
        "_parameters": OrderedDict((name, nn.Parameter(value)) for name, value in parameters.items()),
        "_buffers": OrderedDict(buffers),
    }
    meta = {"type": "class", "version": 6, "module_src": "raise SystemExit", "class_name": "Any", "state": state}
    return _Stored(meta)


class _Stored:
    def __init__(self, meta: dict[str, Any]) -> None:
        self.meta = meta

    def __reduce__(self) -> Any:
        return sys.modules["torch_utils.persistence"]._reconstruct_persistent_obj, (self.meta,)  # type: ignore[attr-defined]


def save_pickle(path: Path, *, extra: Any = None) -> Path:
    """A small network in the authors' form; `extra` is stored in place of the discriminator."""
    first, layers = design()

    def affine(name: str, out: int, bias: Tensor) -> Any:
        return persistent({}, {"weight": values(f"{name} affine", out, WIDTH), "bias": bias}, {})

    modules: dict[str, Any] = {
        "input": persistent(
            {"affine": affine("input", 4, torch.tensor([1.0, 0.1, 0.05, -0.03]))},
            {"weight": values("input weight", 8, 8)},
            {
                "transform": torch.eye(3),
                "freqs": values("freqs", 8, 2) * first["bandwidth"] / 3,
                "phases": values("phases", 8) / 4,
            },
            **first,
        )
    }
    for number, layer in enumerate(layers):
        into, out = layer.pop("channels")
        filters = {name: layer.pop(name) for name in ("up_filter", "down_filter")}
        weight = {"weight": values(f"layer {number}", out, into, layer["conv_kernel"], layer["conv_kernel"])}
        modules[f"L{number}"] = persistent(
            {"affine": affine(f"layer {number}", into, torch.ones(into))},
            {**weight, "bias": values(f"bias {number}", out) / 10},
            {**filters, "magnitude_ema": torch.tensor(0.7 + number / 10)},
            **layer,
        )
    names = [f"L{number}" for number in range(LAYERS + 1)]
    synthesis = persistent(modules, {}, {}, layer_names=names, output_scale=0.25, img_resolution=SIZE)
    mapping = persistent({"embed": nn.Embedding(CLASSES, 4)}, {}, {"w_avg": values("w_avg", CLASSES, WIDTH)})
    content = {"G": extra, "D": extra, "G_ema": persistent({"synthesis": synthesis, "mapping": mapping}, {}, {}), "w": WIDTH}
    with pytest.MonkeyPatch.context() as patch:
        module = ModuleType("torch_utils.persistence")
        exec("def _reconstruct_persistent_obj(meta): raise AssertionError('was run')", module.__dict__)
        patch.setitem(sys.modules, "torch_utils", ModuleType("torch_utils"))
        patch.setitem(sys.modules, "torch_utils.persistence", module)
        path.write_bytes(pickle.dumps(content))
    return path


def save_stylegan(folder: Path) -> Path:
    """The same network as the generator reads it."""
    from safetensors.torch import save_file

    from counterfoil.parts.generators.stylegan_pickle import read_pickle
    from counterfoil.parts.generators.stylegan_xl import SETTINGS

    folder.mkdir(exist_ok=True)
    tensors, settings = read_pickle(save_pickle(folder / "small.pkl"))
    save_file(tensors, folder / "small.safetensors", {SETTINGS: settings.write()})
    return folder / "small.safetensors"
