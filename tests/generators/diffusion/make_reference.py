"""Writes reference.safetensors: what OpenAI's own code makes of small networks with named weights.

Run where their two repositories, improved-diffusion and guided-diffusion, are importable:

    python -m tests.generators.diffusion.make_reference
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.generators.named_weights import named_weights, normal

FILE = Path(__file__).with_name("reference.safetensors")
SMALL: dict[str, Any] = {"image_size": 32, "num_channels": 32, "num_res_blocks": 1, "attention_resolutions": "16,8"}
CASES: dict[str, dict[str, Any]] = {
    "improved": {**SMALL, "num_heads": 4, "learn_sigma": True, "diffusion_steps": 4000, "noise_schedule": "cosine"},
    "improved-shift": {**SMALL, "num_heads": 1, "use_scale_shift_norm": False, "num_heads_upsample": 2},
    "guided": {
        **SMALL,
        "channel_mult": "1,2,3",
        "num_head_channels": 16,
        "resblock_updown": True,
        "use_new_attention_order": True,
        "learn_sigma": True,
        "class_cond": True,
    },
    "guided-legacy": {**SMALL, "channel_mult": "1,2", "resblock_updown": True, "num_head_channels": 8},
}


def inputs(case: str) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy images, times and classes."""
    times = torch.tensor([3, CASES[case].get("diffusion_steps", 1000) * 2 // 3])
    return normal(2, "noisy", 3, 16, 16), times, torch.tensor([7, 999])


def main() -> None:
    found = {}
    for case, flags in CASES.items():
        package = "improved_diffusion" if case.startswith("improved") else "guided_diffusion"
        scripts = import_module(f"{package}.script_util")
        model, process = scripts.create_model_and_diffusion(**{**scripts.model_and_diffusion_defaults(), **flags})
        model.load_state_dict(named_weights(model.state_dict()))
        noisy, times, classes = inputs(case)
        told = {"y": classes} if flags.get("class_cond") else {}
        with torch.no_grad():
            found[f"{case}.guess"] = process._wrap_model(model.eval())(noisy, times, **told)
        clean = process.p_mean_variance(model, noisy, times, clip_denoised=True, model_kwargs=told)["pred_xstart"]
        found[f"{case}.clean"] = clean.detach()
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, FILE)


if __name__ == "__main__":
    main()
