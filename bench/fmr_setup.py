"""The set-up that FMR's speed is measured with, and the loop one would write from the paper.

VQGAN f16-16384 at 256 pixels, ResNet-50, CLIP ViT-B/32, all with random weights; the oracle is asked and its answer is taken for
a yes, so that every image takes all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor

from counterfoil.core.spec import SearchSpec
from counterfoil.engine.guidance import StepLength
from counterfoil.engine.scheduler import Job
from counterfoil.engine.step import RoundTo8Bits
from counterfoil.parts.contracts import State, Verdicts
from counterfoil.parts.encoders.clip import TransformersEncoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.vqgan import Architecture, autoencoder, build
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from counterfoil.parts.oracles.scoring import ZeroShotOracle


@dataclass(frozen=True)
class Parts:
    """What is put together."""

    model: ModuleModel
    generator: LatentGenerator
    oracle: Agreeing
    size: int


class Agreeing:
    """An oracle that is asked, and whose answer is taken for a yes."""

    def __init__(self, inner: ZeroShotOracle) -> None:
        self.inner = inner

    def bind(self, classes: Any) -> Agreeing:
        return Agreeing(self.inner.bind(classes))

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        said = self.inner.judge(images, labels)
        return Verdicts(said.keeps_label * 0 + 1, said.scores, said.predicted)


class WordlessEncoder(TransformersEncoder):
    """CLIP with random weights, and random directions for words: there is no tokenizer to go with them."""

    def embed_texts(self, texts: Any) -> Tensor:
        chance = torch.Generator().manual_seed(len(texts))
        return torch.randn(len(texts), self.model.config.projection_dim, generator=chance).to(self.model.device)


def parts(device: str, *, small: bool) -> Parts:
    """The networks, with random weights."""
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    size = 32 if small else 256
    shape = Architecture(
        n_embed=64 if small else 16_384, embed_dim=32 if small else 256, z_channels=32 if small else 256, ch=32 if small else 128,
        ch_mult=(1, 2) if small else (1, 1, 2, 2, 4), num_res_blocks=1 if small else 2, resolution=size, attn_resolutions=(16,),
    )  # fmt: skip
    network = build(shape)
    generator = LatentGenerator(autoencoder(network.to(device), shape), size=size)
    resnet = torchvision.models.resnet18 if small else torchvision.models.resnet50
    side = 32 if small else 224
    seen = Preprocessing(size=(side, side), resize=(side + 8, side + 8), mean=IMAGENET_MEAN, std=IMAGENET_STD)
    classes = [f"thing {number}" for number in range(1000)]
    model = ModuleModel(resnet(weights=None), classes, preprocessing=seen).to(device)
    few = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    config = CLIPConfig(vision_config=few if small else {}, text_config={"num_hidden_layers": 1})
    looked = Preprocessing(size=(side, side), interpolation="bicubic", mean=IMAGENET_MEAN, std=IMAGENET_STD)
    encoder = WordlessEncoder(CLIPModel(config).to(device), None, looked, name="random")
    oracle = Agreeing(ZeroShotOracle(encoder)).bind(classes)
    return Parts(model, generator, oracle, size)


def jobs(count: int, size: int) -> list[Job]:
    chance = torch.Generator().manual_seed(1)
    pictures = (torch.rand(count, 3, size // 8, size // 8, generator=chance) * 255).round() / 255
    larger = F.interpolate(pictures, size=(size, size), mode="nearest")
    return [Job(f"picture {number}", picture, number % 1000, number) for number, picture in enumerate(larger)]


def loop(given: Parts, work: list[Job], search: SearchSpec, *, batch: int, device: str) -> int:
    """Algorithm 1 as one would write it down, `batch` images at a time until the last of them has ended. The steps kept."""
    length = StepLength(search.step or given.generator.step_size, search.norm, search.unit)
    kept = 0
    for at in range(0, len(work), batch):
        some = work[at : at + batch]
        labels, seeds = torch.tensor([[job.label, job.seed] for job in some], device=device).T
        with torch.no_grad():
            state = given.generator.start(torch.stack([job.image for job in some]).to(device), labels, seeds)
        alive = torch.ones(len(some), dtype=torch.bool, device=device)
        for _ in range(search.budget):
            state, accepted = iteration(given, state, labels, length)
            alive &= accepted
            if not (left := int(alive.sum())):
                break
            kept += left
    return kept


def iteration(given: Parts, state: State, labels: Tensor, length: StepLength) -> tuple[State, Tensor]:
    """One step of that loop: where it leads, and which of the pictures are still seen as their class.  # (N,) of bool"""
    model, generator, oracle = given.model, given.generator, given.oracle
    leaf = state[generator.moving].detach().requires_grad_()
    pictures = RoundTo8Bits.apply(generator.render({**state, generator.moving: leaf}))
    loss = F.cross_entropy(model.logits(pictures), labels, reduction="sum")
    gradient = torch.autograd.grad(loss, leaf)[0]
    with torch.no_grad():
        state = generator.step(state, length.scale_to_step(gradient, state["scale"]))
        pictures = RoundTo8Bits.apply(generator.render(state))
        return state, oracle.judge(pictures, labels).keeps_label != 0
