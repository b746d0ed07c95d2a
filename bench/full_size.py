"""Seconds of LANCE and of training a rewriter with networks of the published sizes and random weights, from a folder.

    python -m bench.full_size [--device cuda] [--only captions,edits,klein,…] [--folder DIR] [--tiny] [--keep NAME]

Stable Diffusion 1.4 at 512 px, BLIP-2 OPT-2.7B, Llama-7B and CLIP ViT-L/14 are built, saved as their libraries save them, and
opened by `run --protocol lance` and `train-rewriter` as a user's own would be. Random weights cost the same time as trained
ones, but write and draw nonsense: so captions and rewrites are stages of runs of their own, and the run that edits takes its
captions from a file and its rewrites from the word lists. `captions`: 16 images. `rewrites`: 8 captions, five factors.
`edits`: null-text inversion of 8 images and four edits each with a sweep of five, judged and scored. `training`: one epoch of
LoRA over 60 pairs. Seconds hold the loading of networks. `klein` and `flowedit` are editors of today, one candidate per edit at
512 px: FLUX.2 klein 4B in four steps, and FlowEdit over Stable Diffusion 3.5 medium without its T5 encoder, 33 of 50 steps.
`--tiny` takes tiny networks, to rehearse on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench.results import add_keep, command, keep
from bench.setup import CAPTION, EDITED, FULL, TINY, photographs, pipeline, stable_diffusion, words
from torch import nn

from counterfoil import protocols
from counterfoil.core.errors import RunFailed
from counterfoil.parts.contracts import EditResult
from counterfoil.parts.editors.flow import FlowEditor, FlowOptions
from counterfoil.parts.editors.instruct import InstructOptions, PipelineEditor
from counterfoil.parts.language.training import Recipe, train
from counterfoil.testing import pictures

CLASSES = ("dress", "bag", "coat", "shirt")
COLOURS, PLACES = ("red", "blue", "green", "black"), ("on a beach", "in a forest")
COVERS = ["src/counterfoil/parts/editors", "src/counterfoil/parts/language", "src/counterfoil/parts/fast"]
FACTORS = ["subject", "object", "background", "adjective", "domain"]


def caption(number: int) -> str:
    """Captions of the classes in turn."""
    return f"a photo of a {COLOURS[number // 4 % 4]} wool {CLASSES[number % 4]} with a dog {PLACES[number // 16 % 2]}"


def classifier() -> tuple[nn.Module, list[str]]:
    """The model that is tested: what it says does not matter here."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, len(CLASSES))), list(CLASSES)


def save_sd(folder: Path, device: str, *, tiny: bool) -> None:
    pipeline(stable_diffusion(TINY if tiny else FULL, device=device)).save_pretrained(folder)


def save_clip(folder: Path, device: str, *, tiny: bool) -> None:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    tokenizer = words(49_408, ends=True)
    numbers = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    seeing = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "patch_size": 14,
    }
    reading = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    side = 32 if tiny else 224
    config = CLIPConfig(
        vision_config={**(small if tiny else seeing), "image_size": side, "patch_size": 8 if tiny else 14},
        text_config={**(small if tiny else reading), "vocab_size": len(tokenizer), **numbers},
        projection_dim=32 if tiny else 768,
    )
    with torch.device(device):
        network = CLIPModel(config)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side}).save_pretrained(folder)


def save_blip2(folder: Path, device: str, *, tiny: bool) -> None:
    from transformers import Blip2Config, Blip2ForConditionalGeneration, Blip2Processor, BlipImageProcessor

    tokenizer = words(50_304, ends=True)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    numbers = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text: dict[str, Any] = {"model_type": "opt", "vocab_size": len(tokenizer), **numbers}
    text |= {
        "hidden_size": 2560,
        "ffn_dim": 10_240,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "word_embed_proj_dim": 2560,
    }
    parts: dict[str, Any] = {"vision_config": {}, "qformer_config": {"vocab_size": len(tokenizer)}, "num_query_tokens": 32}
    if tiny:
        small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        parts["vision_config"] = {**small, "image_size": 32, "patch_size": 8}
        parts["qformer_config"] |= {**small, "encoder_hidden_size": 32}
        text |= {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "word_embed_proj_dim": 32}
    with torch.device(device):
        network = Blip2ForConditionalGeneration(
            Blip2Config(text_config=text, image_token_index=tokenizer.convert_tokens_to_ids("<image>"), **parts)
        )
    network.to(torch.bfloat16).save_pretrained(folder)
    side = network.config.vision_config.image_size
    Blip2Processor(BlipImageProcessor(size={"height": side, "width": side}), tokenizer, num_query_tokens=32).save_pretrained(
        folder
    )


def save_llama(folder: Path, device: str, *, tiny: bool) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = words(32_000)
    numbers = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64} if tiny else {}
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if tiny else torch.bfloat16)
    try:
        with torch.device(device):
            network = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **small, **numbers))  # the defaults are those of 7B
    finally:
        torch.set_default_dtype(usual)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def spec_of(folder: Path, asked: argparse.Namespace, images: int, **parts: Any) -> Any:
    values: dict[str, Any] = {
        "protocol": "lance",
        "model": f"python:{Path(__file__).resolve()}:classifier",
        "data": f"folder:{folder / 'photographs'}",
        "captioner": f"captions:{folder / 'captions.csv'}",
        "editor": f"p2p:{folder / 'sd'}",
        "encoder": f"clip:{folder / 'clip'}",
        "oracle": f"clip:{folder / 'clip'}",
        "edit": {"factors": FACTORS, "class_similarity": 1.0},
        "quality": {"image_image": -1, "image_text": -1, "directional": -1, "nearer": False},
        "device": asked.device,
        "limit": images,
    }
    return protocols.parse({**values, **parts})


def lines_of(out: Path, stage: str) -> int:
    return len((out / "stages" / f"{stage}.jsonl").read_text().splitlines())


def fresh(folder: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(dir=folder)) / name


def captions(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    options = {"dtype": "float32" if asked.tiny else "bfloat16", "max_tokens": 20 if asked.tiny else 100}
    spec, out = spec_of(folder, asked, 16, captioner={"name": f"blip:{folder / 'blip2'}", **options}), fresh(folder, "captions")
    with contextlib.suppress(RunFailed):  # as no caption makes sense
        protocols.run(spec, out, stage="captions")
    return {"captions": lines_of(out, "captions")}


def rewrites(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    options = {"dtype": "float32", "max_tokens": 8} if asked.tiny else {"dtype": "bfloat16"}
    spec = spec_of(folder, asked, 8, rewriter={"name": f"llm:{folder / 'llama'}", **options})
    with contextlib.suppress(RunFailed):
        protocols.run(spec, fresh(folder, "rewrites"), stage="edits")
    return {"rewrites": 8 * len(FACTORS)}


def edits(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    editor: Any = {"name": f"p2p:{folder / 'sd'}", **({"steps": 2} if asked.tiny else {})}
    spec = spec_of(folder, asked, 8, editor=editor, edit={"factors": FACTORS[1:], "class_similarity": 1.0})
    trials = list(protocols.run(spec, fresh(folder, "edits")).trials)
    return {"images": len({trial.image_id for trial in trials}), "edits drawn": len(trials)}


def training(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    pairs = folder / "pairs.jsonl"
    edited = [caption(at).replace("wool", "silk" if at < 32 else "cotton") for at in range(60)]
    rows = [{"caption": caption(at), "factor": "adjective", "edit": edit} for at, edit in enumerate(edited)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = train(
        pairs, str(folder / "llama"), fresh(folder, "adapter"), recipe=Recipe(epochs=1.0, batch=4), device=asked.device,
        dtype="float32" if asked.tiny else "bfloat16",
    )  # fmt: skip
    return {"steps": done.steps, "pairs": 60}


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


def edit_today(name: str, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Seconds per edit of an editor of today, one candidate each."""
    usual = torch.get_default_dtype()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(asked.device):
            editor = {"klein": klein, "flowedit": flowedit}[name](tiny=asked.tiny)
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
    return {"size": editor.size, "seconds_per_edit": round(min(seconds[1:]), 3)}


WORK: dict[str, tuple[tuple[str, ...], Callable[[Path, argparse.Namespace], dict[str, Any]]]] = {
    "captions": (("blip2", "sd", "clip"), captions),
    "rewrites": (("llama", "sd", "clip"), rewrites),
    "edits": (("sd", "clip"), edits),
    "training": (("llama",), training),
    "klein": ((), partial(edit_today, "klein")),
    "flowedit": ((), partial(edit_today, "flowedit")),
}
SAVE = {"sd": save_sd, "clip": save_clip, "blip2": save_blip2, "llama": save_llama}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=",".join(WORK), help="parts of the work, separated by commas")
    parser.add_argument("--folder", type=Path, help="where networks and runs are kept, to be used again; default a temporary one")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to rehearse")
    add_keep(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="full-size-") as temporary:
        folder = asked.folder or Path(temporary)
        photographs(folder / "photographs", 16, CLASSES)
        files = sorted((folder / "photographs").rglob("*.jpg"))
        table = [f"{file.name},{caption(CLASSES.index(file.parent.name))}" for file in files]
        (folder / "captions.csv").write_text("\n".join(["file_name,caption", *table]) + "\n")
        rows: list[dict[str, Any]] = []
        for name in asked.only.split(","):
            needed, work = WORK[name]
            for each in needed:
                if not (folder / each).is_dir():
                    torch.manual_seed(0)
                    SAVE[each](folder / each, asked.device, tiny=asked.tiny)
                    print(f"saved {each}", flush=True)
            if asked.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            found = work(folder, asked)
            row = {"what": name, "seconds": round(time.perf_counter() - began, 2), **found}
            if asked.device == "cuda":
                row["GiB"] = torch.cuda.max_memory_allocated() / 2**30
            rows.append(row)
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            if asked.keep:
                sizes = "tiny networks, a rehearsal" if asked.tiny else "SD 1.4, BLIP-2 OPT-2.7B, Llama-7B, CLIP L/14"
                about = f"LANCE and train-rewriter with {sizes}, random weights, read from a folder; seconds with loading."
                keep(asked.keep, rows, command=command("bench.full_size"), about=about, covers=COVERS)


if __name__ == "__main__":
    main()
