"""Latents to fit a mask on: with their classes, or before and after a climb."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor

from counterfoil.core.errors import BadData
from counterfoil.parts.generators.latent import LatentGenerator, QuantisedAutoencoder
from counterfoil.protocols.workspace import Workspace

Compared = Literal["published", "codes"]
"""`published`: the encoder's outputs against quantised codes, as the paper says; then a regression may well tell a rounded
number from one that is not. `codes`: both quantised, so that only what the climb changed can tell them apart."""


BATCH = 32


@torch.no_grad()
def labelled_latents(assembly: Workspace[Any], *, watch: Callable[[int], None] = lambda more: None) -> tuple[Tensor, Tensor]:
    """The moving tensor of every image, and the classes.  # (n, …), (n,)"""
    generator, found, labels = assembly.generator, [], []
    jobs = assembly.jobs(iter(assembly.dataset), lambda sample, problem: None)
    while some := list(islice(jobs, BATCH)):
        images = torch.stack([job.image for job in some]).to(assembly.spec.device)
        classes = torch.tensor([job.label for job in some], device=images.device)
        seeds = torch.tensor([job.seed for job in some], device=images.device)
        found.append(generator.start(images, classes, seeds)[generator.moving].cpu())
        labels.append(classes.cpu())
        watch(len(some))
    if not found:
        raise BadData("sparse: none of the images to fit on could be read")
    return torch.cat(found), torch.cat(labels)


def pairs(
    assembly: Workspace[Any], *, compared: Compared = "published", watch: Callable[[int], None] = lambda more: None
) -> tuple[Tensor, Tensor]:
    """The latents of the images whose climb took a step: original, and where the guided climb ended.  # (n, …) twice"""
    generator = assembly.generator
    before, after = [], []
    engine = assembly.new_engine(assembly.spec.search.model_copy(update={"control": "none"}), keep_places=True)
    for done in engine.run(assembly.jobs(iter(assembly.dataset), lambda sample, problem: None)):
        watch(1)
        if done.climbs[0].steps:
            image = done.job.image[None].to(assembly.spec.device)
            whole = torch.zeros(1, dtype=torch.long, device=image.device)
            with torch.no_grad():
                started = generator.start(image, torch.full_like(whole, done.job.label), torch.full_like(whole, done.job.seed))
            before.append(started[generator.moving].cpu()[0])
            after.append(done.places[0])
    if not before:
        raise BadData("sparse: no image took a step that the oracle accepted; use smaller steps")
    original, perturbed = torch.stack(before), torch.stack(after)
    autoencoder = generator.autoencoder if isinstance(generator, LatentGenerator) and generator.space == "before" else None
    if isinstance(autoencoder, QuantisedAutoencoder):
        perturbed = _quantise(autoencoder, perturbed, assembly.spec.device)
        if compared == "codes":
            original = _quantise(autoencoder, original, assembly.spec.device)
    return original, perturbed


@torch.no_grad()
def _quantise(autoencoder: QuantisedAutoencoder, latents: Tensor, device: str) -> Tensor:
    return torch.cat([autoencoder.quantise(part.to(device)).cpu() for part in latents.split(8)])
