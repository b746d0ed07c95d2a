"""The models that give pictures back: the vqgan that codes them and the ddpm that cleans them of noise."""

from __future__ import annotations

import torch
from diffusers import DDIMScheduler, UNet2DModel, VQModel
from torch import Tensor

from counterfoil.lab.measures.attributes import read_right, shares
from counterfoil.lab.measures.bench import Bench
from counterfoil.lab.readings import Reading, lost, mean, share
from counterfoil.lab.train.formats import normalise

READABLE = 5.0
"""An attribute is still readable if the checker's accuracy on it is at most so many points lower than on the originals."""


def vqgan(bench: Bench) -> list[Reading]:
    """Fidelity of reconstructions and what survives in them."""
    scenes, images = bench.scenes()
    book = int(bench.load(VQModel, "vqgan").config.num_vq_embeddings)  # type: ignore[union-attr, arg-type]
    codes = bench.codes(images)
    made = bench.decoded(codes)
    before, after = (bench.classify("diverse", pictures) == scenes.factors["garment"] for pictures in (images, made))
    originals, reconstructions = read_right(bench, images, scenes), read_right(bench, made, scenes)
    cells = codes.permute(0, 2, 3, 1).flatten(0, 2)  # (N · 16 · 16, 8)
    used = 100 * len(cells.unique(dim=0)) / book
    return [
        mean("PSNR", _fidelity(made, images), "dB", at_least=26),
        share("accuracy of diverse on originals", before),
        share("accuracy of diverse on reconstructions", after),
        lost("accuracy lost in reconstruction", before, after, at_most=2),
        Reading("codes in use", used, used, used, len(cells)),
        *shares(reconstructions, " read off reconstructions"),
        *(
            lost(f"{factor} lost in reconstruction", right, reconstructions[factor], at_most=READABLE)
            for factor, right in originals.items()
        ),
    ]


def ddpm(bench: Bench) -> list[Reading]:
    """What survives noising to a third of the way and denoising."""
    scenes, images = bench.scenes()
    model = bench.load(UNet2DModel, "ddpm", "unet")
    scheduler = DDIMScheduler.from_pretrained(bench.folder("ddpm", "scheduler"))
    generator = torch.Generator().manual_seed(bench.seed)

    def restored(part: Tensor) -> Tensor:
        scheduler.set_timesteps(30)
        times = scheduler.timesteps[-10:]
        noise = torch.randn(part.shape, generator=generator).to(part)
        noisy = scheduler.add_noise(normalise(part), noise, times[:1].expand(len(part)))
        for time in times:
            noisy = scheduler.step(model(noisy, time).sample, time, noisy).prev_sample
        return (noisy / 2 + 0.5).clamp(0, 1)  # type: ignore[no-any-return]

    made = bench.batched(restored, images)
    fidelity = mean("PSNR after noising a third of the way", _fidelity(made, images), "dB")
    return [fidelity, *shares(read_right(bench, made, scenes), " kept")]


def _fidelity(made: Tensor, images: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each picture.  # (N, 3, H, W) → (N,)"""
    return -10 * torch.log10((made - images).square().flatten(1).mean(1))
