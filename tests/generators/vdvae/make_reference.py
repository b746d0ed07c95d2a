"""Writes reference.safetensors: what the authors' own layers of Efficient-VDVAE make of small networks with named weights.

Run where `efficient_vdvae_torch` of their repository is on the path (their helpers also import tensorboard):

    PYTHONPATH=.:…/efficient_vdvae_torch python -m tests.generators.vdvae.make_reference
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from counterfoil.parts.generators.vdvae import read_literal
from tests.generators.named_weights import named_pictures, named_weights

FILE = Path(__file__).with_name("reference.safetensors")

MODEL = {
    "stable_init": "True", "initialize_prior_weights_as_zero": "False", "use_1x1_conv": "True", "distribution_base": "'std'",
    "output_distribution_base": "'std'", "gradient_smoothing_beta": "0.6931472", "output_gradient_smoothing_beta": "0.6931472",
    "input_conv_filters": "4", "input_kernel_size": "(1, 1)", "up_strides": "[1] + [2] + [1] * 2 + [4]",
    "up_n_blocks_per_res": "[0] * 3 + [1] + [0]", "up_n_blocks": "[1] * 5", "up_n_layers": "[2] * 5",
    "up_filters": "[4] + [6] * 3 + [8]", "up_mid_filters_ratio": "[1.] * 2 + [0.5] * 3", "up_kernel_size": "[3] * 5",
    "up_skip_filters": "[4] * 2 + [6] * 3", "use_residual_distribution": "False", "down_strides": "[4] + [1] * 2 + [2] + [1]",
    "down_n_blocks_per_res": "[0] * 3 + [2] + [0]", "down_n_blocks": "[1] * 4 + [2]", "down_n_layers": "[2] * 5",
    "down_filters": "[6] * 3 + [4] * 2", "down_mid_filters_ratio": "[0.5] * 3 + [1.] * 2", "down_kernel_size": "[1] + [3] * 4",
    "down_latent_variates": "[3] * 5", "output_kernel_size": "(1, 1)", "num_output_mixtures": "2",
}  # fmt: skip
CASES: dict[str, dict[str, str]] = {
    "compact": MODEL,
    "other": {
        **MODEL, "use_1x1_conv": "False", "distribution_base": "'logstd'", "use_residual_distribution": "True",
        "up_kernel_size": "[3] * 4 + [2]", "down_kernel_size": "[2] + [3] * 4", "input_kernel_size": "3", "num_bits": "5.",
    },
}  # fmt: skip
"""The entries of [model] by case, as they are written in INI files; `num_bits` belongs to [data]."""


def bits(model: dict[str, str]) -> float:
    """The colour depth of a case."""
    return float(read_literal(model.get("num_bits", "8.")))


def authors_network(model: dict[str, str]) -> Any:
    """The authors' network, whose settings are a module of their own; its draws are the posteriors' means."""
    settings = SimpleNamespace(
        model=SimpleNamespace(**{name: read_literal(text) for name, text in model.items()}),
        data=SimpleNamespace(dataset_source="imagenet", target_res=16, channels=3, num_bits=bits(model)),
        loss=SimpleNamespace(min_mol_logscale=-250.0),
    )  # fmt: skip
    for name in [name for name in sys.modules if name.partition(".")[0] in ("model", "utils")]:
        del sys.modules[name]  # they read the settings when they are imported
    sys.modules["hparams"] = ModuleType("hparams")
    sys.modules["hparams"].HParams = SimpleNamespace(get_hparams_by_name=lambda name: settings)  # type: ignore[attr-defined]
    sys.modules["prettytable"] = MagicMock()
    script, torch.jit.script = torch.jit.script, lambda function: function
    from model import latent_layers, layers
    from model.def_model import UniversalAutoEncoder

    torch.jit.script = script
    latent_layers.calculate_z = lambda mean, std: (mean, mean, std)

    def reset(self: Any, inputs: Tensor) -> None:
        self.scale_bias = nn.Parameter(torch.zeros(1, *inputs.shape[1:]))

    layers.Unpoolayer.reset_parameters = reset
    return UniversalAutoEncoder().eval()


@torch.no_grad()
def main() -> None:
    found: dict[str, Tensor] = {}
    for name, model in CASES.items():
        network = authors_network(model)
        images = named_pictures(2, 16)
        grain = 2 ** (8 - bits(model))
        samples = ((images * 255 / grain).floor() * grain if grain > 1 else images * 255) / 127.5 - 1
        network(samples)  # which makes the parameters that are made at first use
        network.load_state_dict(named_weights(network.state_dict()))
        logits, posteriors, _ = network(samples)
        found |= {f"{name}.logits": logits.contiguous()}
        found |= {f"{name}.latent.{place}": mean.contiguous() for place, (mean, _) in enumerate(posteriors)}
        found |= {f"{name}.spread.{place}": spread.contiguous() for place, (_, spread) in enumerate(posteriors)}
        names = "\n".join(f"{key} {tuple(value.shape)}" for key, value in sorted(network.state_dict().items()))
        found[f"{name}.names"] = torch.tensor(list(names.encode()), dtype=torch.uint8)
    save_file(found, FILE)


if __name__ == "__main__":
    main()
