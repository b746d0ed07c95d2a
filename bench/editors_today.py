"""Memory and seconds per edit of editors of today, with networks of the published sizes and random weights.

    python -m bench.editors_today [--device cuda] [--only klein,flowedit] [--tiny] [--keep NAME]

`klein`: FLUX.2 klein 4B, four steps at 512 px, one seed. `flowedit`: FlowEdit over Stable Diffusion 3.5 medium without its T5
encoder, 50 steps of which 33 edit, at 512 px. Random weights cost the same time as trained ones, but draw noise.
`--tiny` takes tiny networks, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from bench.results import add_keep, command, keep
from bench.setup import CAPTION, EDITED, words

from counterfoil.parts.contracts import EditResult
from counterfoil.parts.editors.flow import FlowEditor, FlowOptions
from counterfoil.parts.editors.instruct import InstructOptions, PipelineEditor
from counterfoil.testing import pictures

CHAT = "{% for each in messages %}{{ each['content'] }}{% endfor %}"
EDITS = 3  # after one that warms up


def scheduler(**more: Any) -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(**more)


def klein(*, tiny: bool) -> PipelineEditor:
    """FLUX.2 klein 4B: a transformer of 5 + 20 blocks, read to by Qwen3 4B."""
    from diffusers import AutoencoderKLFlux2, Flux2KleinPipeline, Flux2Transformer2DModel
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = words(1000 if tiny else 151_936)
    tokenizer.chat_template = CHAT
    small = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 28,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    full = {
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }  # fmt: skip
    config = Qwen3Config(vocab_size=len(tokenizer), head_dim=8 if tiny else 128, **(small if tiny else full))
    blocks = {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2} if tiny else {
        "num_layers": 5, "num_single_layers": 20, "attention_head_dim": 128, "num_attention_heads": 24,
    }  # fmt: skip
    axes = (4, 4, 4, 4) if tiny else (32, 32, 32, 32)
    transformer = Flux2Transformer2DModel(
        in_channels=16 if tiny else 128,
        joint_attention_dim=3 * config.hidden_size,
        axes_dims_rope=axes,
        guidance_embeds=False,
        **blocks,
    )
    narrow = {"block_out_channels": (8, 8), "latent_channels": 4, "norm_num_groups": 4, "layers_per_block": 1}
    kinds = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    pipeline = Flux2KleinPipeline(
        scheduler=scheduler(use_dynamic_shifting=True),
        vae=AutoencoderKLFlux2(**narrow, **kinds) if tiny else AutoencoderKLFlux2(),
        text_encoder=Qwen3ForCausalLM(config),
        tokenizer=tokenizer,
        transformer=transformer,
        is_distilled=True,
    )
    return PipelineEditor(pipeline, InstructOptions(sweep=0, size=64 if tiny else 512, precision="bfloat16"))


def flowedit(*, tiny: bool) -> FlowEditor:
    """Stable Diffusion 3.5 medium: a transformer of 24 blocks, read to by CLIP L/14 and CLIP bigG."""
    from diffusers import AutoencoderKL, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    tokenizer = words(1000 if tiny else 49_408, ends=True)
    tokenizer.model_max_length = 77
    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    first = small if tiny else {"num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    second = small if tiny else {"num_hidden_layers": 32, "num_attention_heads": 20, "intermediate_size": 5120}
    encoders = [
        CLIPTextModelWithProjection(
            CLIPTextConfig(
                vocab_size=len(tokenizer),
                hidden_size=width,
                projection_dim=width,
                bos_token_id=2,
                eos_token_id=3,
                pad_token_id=0,
                **each,
            )
        )
        for each, width in ((first, 16 if tiny else 768), (second, 16 if tiny else 1280))
    ]
    size = {"num_layers": 1, "attention_head_dim": 8, "num_attention_heads": 4} if tiny else {
        "num_layers": 24, "attention_head_dim": 64, "num_attention_heads": 24,
    }  # fmt: skip
    widths = {"joint_attention_dim": 32 if tiny else 4096, "pooled_projection_dim": 32 if tiny else 2048}
    channels = {"in_channels": 4 if tiny else 16, "out_channels": 4 if tiny else 16}
    inner = int(size["attention_head_dim"]) * int(size["num_attention_heads"])
    transformer = SD3Transformer2DModel(sample_size=128, patch_size=2, caption_projection_dim=inner, **size, **widths, **channels)
    blocks = 2 if tiny else 4
    vae = AutoencoderKL(
        block_out_channels=(8, 8) if tiny else (128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        layers_per_block=1 if tiny else 2,
        latent_channels=channels["in_channels"],
        norm_num_groups=4 if tiny else 32,
        scaling_factor=1.5305,
        shift_factor=0.0609,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    pipeline = StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=scheduler(shift=3.0),
        vae=vae,
        text_encoder=encoders[0],
        tokenizer=tokenizer,
        text_encoder_2=encoders[1],
        tokenizer_2=tokenizer,
        text_encoder_3=None,
        tokenizer_3=None,
    )
    size_px = 64 if tiny else 512
    return FlowEditor(pipeline, FlowOptions(strength=0.66, size=size_px, precision="bfloat16", steps=3 if tiny else None))


MAKE: dict[str, Callable[..., PipelineEditor | FlowEditor]] = {"klein": klein, "flowedit": flowedit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=",".join(MAKE), help="editors, separated by commas")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in asked.only.split(","):
        torch.manual_seed(0)
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device(asked.device):
                editor = MAKE[name](tiny=asked.tiny)
        finally:
            torch.set_default_dtype(usual)
        editor.pipeline.to(torch.bfloat16)
        for part in editor.pipeline.components.values():
            if isinstance(part, torch.nn.Module):
                part.eval()
        editor.to(asked.device)
        found = editor.invert(pictures(1, int(editor.size or 512)), [CAPTION], [1])
        seconds = []
        for _ in range(1 + EDITS):
            began = time.perf_counter()
            (made,) = editor.edit(found, [EDITED])
            seconds.append(time.perf_counter() - began)
            if not isinstance(made, EditResult):
                raise SystemExit(f"{name}: {made.reason}")
        row: dict[str, Any] = {"editor": name, "size": editor.size, "seconds_per_edit": round(min(seconds[1:]), 3)}
        if asked.device == "cuda":
            row["GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            torch.cuda.reset_peak_memory_stats()
        rows.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        del editor, found, made
        if asked.keep:
            about = "Editors of today with networks of the published sizes and random weights: one candidate per edit."
            keep(asked.keep, rows, command=command("bench.editors_today"), about=about, covers=["src/counterfoil/parts/editors"])


if __name__ == "__main__":
    main()
