"""The painter: whether pictures painted from captions show what the captions say, by three judges."""

from __future__ import annotations

import torch
from diffusers import StableDiffusionPipeline

from counterfoil.lab.captions import captions
from counterfoil.lab.measures.attributes import read_right, shares
from counterfoil.lab.measures.bench import BATCH, Bench
from counterfoil.lab.measures.zero_shot import ZeroShot
from counterfoil.lab.readings import Reading, share

GUIDANCE = 5.0
STEPS = 50
TARGETS = {"colour": 98.0, "background": 98.0, "domain": 98.0, "texture": 98.0, "material": 92.0, "garment": 92.0}
BY_CLIP = ("garment", "material", "texture")


def diffusion(bench: Bench) -> list[Reading]:
    """Attributes of painted pictures: by the checker, which gave the decoders their loss, and the hardest by others."""
    scenes = bench.undrawn()
    texts = captions(scenes)
    pipeline = StableDiffusionPipeline.from_pretrained(bench.folder("diffusion")).to(bench.device)
    pipeline.set_progress_bar_config(disable=True)
    chance = torch.Generator().manual_seed(bench.seed)  # of the CPU, so that every device starts from the same noise
    made = []
    for start in range(0, len(texts), BATCH):
        made.append(
            pipeline(
                texts[start : start + BATCH],
                num_inference_steps=STEPS,
                guidance_scale=GUIDANCE,
                generator=chance,
                height=64,
                width=64,
                output_type="pt",
            ).images.float()
        )
    pictures = torch.cat(made)
    judge = ZeroShot(bench)
    seen = judge.see(pictures)
    garment = bench.classify("diverse", pictures) == scenes.factors["garment"]
    return [
        *shares(read_right(bench, pictures, scenes), " of painted pictures", TARGETS, together=80),
        share("garment of painted pictures, by diverse", garment),
        *(
            share(f"{factor} of painted pictures, by clip", judge.choose(seen, factor) == scenes.factors[factor])
            for factor in BY_CLIP
        ),
    ]
