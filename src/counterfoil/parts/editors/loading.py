"""Reads Stable Diffusion pipelines in diffusers layout: a folder here or on the hub, safetensors only, nothing left to chance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import weights as files
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.generators import checkpoints
from counterfoil.parts.pretrained import Pretrained, quiet

INDEX = "model_index.json"
WANTED = ("unet/*", "vae/*", "text_encoder/*", "tokenizer/*", "scheduler/*")


def pipeline_folder(kind: str, name: str, *, revision: str | None = None) -> tuple[Path, dict[str, Any]]:
    """The folder of a pipeline, and what its index says. `kind` is what errors call it: the word before the colon."""
    if not name:
        raise BadPart(
            f"{kind}: name a folder in diffusers layout or a hub repository, as in {kind}:CompVis/stable-diffusion-v1-4"
        )
    patterns = [*(f"{part.removesuffix('*')}*.{ending}" for part in WANTED for ending in ("safetensors", "json", "txt")), INDEX]
    folder = files.local_folder(name) or checkpoints.folder_of(name, patterns, revision=revision)
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        networks = {part: str(index[part][1]) for part in ("unet", "vae", "text_encoder")}
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        raise BadWeights(
            f"{name}: no {INDEX} that names unet, vae and text_encoder; save the pipeline with save_pretrained"
        ) from None
    wanted = {"unet": "UNet2DConditionModel", "vae": "AutoencoderKL", "text_encoder": "CLIPTextModel"}
    for part, is_ in networks.items():
        if is_ != wanted[part]:
            raise BadPart(f"{kind}:{name}: its {part} is a {is_}; Stable Diffusion 1.x and 2.x have a {wanted[part]}")
    return folder, index


def load(kind: str, name: str, *, revision: str | None = None) -> Diffusion:
    """The networks of a Stable Diffusion pipeline."""
    folder, _ = pipeline_folder(kind, name, revision=revision)
    return Diffusion(
        unet=checkpoints.load(checkpoints.open_folder(folder / "unet")),
        vae=checkpoints.load(checkpoints.open_folder(folder / "vae")),
        text_encoder=text_encoder(folder),
        tokenizer=tokenizer(folder),
        scheduler=checkpoints.read_json(folder / "scheduler" / "scheduler_config.json"),
    )


def text_encoder(folder: Path) -> Any:
    """The pipeline's text encoder, complete."""
    from transformers import CLIPTextModel

    place = str(folder / "text_encoder")
    return Pretrained("text encoder", place, example="folder").model(CLIPTextModel, dtype=torch.float32)


def tokenizer(folder: Path) -> Any:
    """The pipeline's tokenizer."""
    from transformers import AutoTokenizer

    with files.loading(folder / "tokenizer"), quiet():
        return AutoTokenizer.from_pretrained(str(folder / "tokenizer"), trust_remote_code=False)
