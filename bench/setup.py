"""Networks of the published sizes with random weights, which cost the same time as trained ones, images for them, and a clock.

For FMR: VQGAN f16-16384 at 256 pixels, ResNet-50, CLIP ViT-B/32; the oracle is asked and its answer is taken for a yes, so that
every image takes all steps. For editing and painting: Stable Diffusion 1.4.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from torch import Tensor

from counterfoil.engine.device import synchronize
from counterfoil.engine.scheduler import Job
from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.encoders.clip import TransformersEncoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.vqgan import Architecture, autoencoder, build
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from counterfoil.parts.oracles.scoring import ZeroShotOracle


@dataclass(frozen=True)
class Parts:
    """Model, generator and oracle of a run."""

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
    images = (torch.rand(count, 3, size // 8, size // 8, generator=chance) * 255).round() / 255
    larger = F.interpolate(images, size=(size, size), mode="nearest")
    return [Job(f"image {number}", image, number % 1000, number) for number, image in enumerate(larger)]


def photographs(folder: Path, count: int, classes: Sequence[str]) -> None:
    """JPEG files of 500 × 375 pixels with the spectrum of photographs, so that they are about as large as files."""
    chance = torch.Generator().manual_seed(0)
    for number in range(count):
        total = torch.zeros(1, 3, 375, 500)
        for octave in range(2, 9):
            coarse = torch.randn(1, 3, 2**octave * 3 // 4, 2**octave, generator=chance)
            total += F.interpolate(coarse, size=(375, 500), mode="bilinear", align_corners=False) / 2**octave
        pixels = ((total[0] / total.std() * 0.25 + 0.5).clamp(0, 1) * 255).byte().permute(1, 2, 0)  # (H, W, 3)
        place = folder / classes[number % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.numpy()).save(place / f"{number:05d}.jpg", quality=90)


def words(count: int, *, ends: bool = False) -> Any:
    """A tokenizer of whole words, as many as a published vocabulary has; `ends`: texts get an end as well as a start."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    special = ("<pad>", "<unknown>", "<start>", "<end>")
    plain = [
        "a", "the", "of", "on", "in", "photo", "red", "blue", "green", "black", "wool", "silk", "cotton", "dress", "bag", "coat",
        "shirt", "beach", "forest",
    ]  # fmt: skip
    listed = [*special, *plain, *(f"word{number}" for number in range(count - len(special) - len(plain)))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(listed)}, unk_token="<unknown>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>" if ends else "<start> $A", special_tokens=[("<start>", 2), ("<end>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unknown>", bos_token="<start>", eos_token="<end>",
        model_max_length=2048,
    )  # fmt: skip


SCHEDULER = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "set_alpha_to_one": False,
    "steps_offset": 1,
    "clip_sample": False,
}
CAPTION, EDITED = "a photo of a red wool dress on a beach", "a photo of a red wool dress in a forest"


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Stable Diffusion; the defaults are those of 1.4."""

    widths: tuple[int, ...] = (320, 640, 1280, 1280)
    heads: int = 8
    text: int = 768
    text_layers: int = 12
    tokens: int = 77
    vae: tuple[int, ...] = (128, 256, 512, 512)
    layers: int = 2
    side: int = 64
    groups: int = 32


FULL = Sizes()
TINY = Sizes(widths=(16, 32), heads=4, text=16, text_layers=1, tokens=32, vae=(8, 8), layers=1, side=8, groups=4)


def stable_diffusion(sizes: Sizes, *, device: str) -> dict[str, Any]:
    """UNet, autoencoder, text encoder and tokenizer, made on the device."""
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    levels = len(sizes.widths)
    tokenizer = words(49_408 if sizes is FULL else 64, ends=True)
    tokenizer.model_max_length = sizes.tokens
    torch.manual_seed(0)
    with torch.device(device):
        unet = UNet2DConditionModel(
            sample_size=sizes.side,
            block_out_channels=sizes.widths,
            layers_per_block=sizes.layers,
            down_block_types=("CrossAttnDownBlock2D",) * (levels - 1) + ("DownBlock2D",),
            up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * (levels - 1),
            cross_attention_dim=sizes.text,
            attention_head_dim=sizes.heads,
            norm_num_groups=sizes.groups,
        )
        vae = AutoencoderKL(
            block_out_channels=sizes.vae,
            down_block_types=("DownEncoderBlock2D",) * len(sizes.vae),
            up_block_types=("UpDecoderBlock2D",) * len(sizes.vae),
            layers_per_block=sizes.layers,
            latent_channels=4,
            norm_num_groups=sizes.groups,
            sample_size=sizes.side * 2 ** (len(sizes.vae) - 1),
            scaling_factor=0.18215,
        )
        text = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(tokenizer),
                hidden_size=sizes.text,
                intermediate_size=4 * sizes.text,
                num_hidden_layers=sizes.text_layers,
                num_attention_heads=max(2, sizes.text // 64),
                max_position_embeddings=sizes.tokens,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    made = {"unet": unet, "vae": vae, "text_encoder": text}
    return {**{name: part.eval().requires_grad_(False) for name, part in made.items()}, "tokenizer": tokenizer}


def diffusion(parts: dict[str, Any]) -> Diffusion:
    """The networks as editors use them."""
    return Diffusion(**parts, scheduler=SCHEDULER)


def pipeline(parts: dict[str, Any]) -> Any:
    """The networks as diffusers uses them."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline

    made = StableDiffusionPipeline(
        **parts, scheduler=DDIMScheduler(**SCHEDULER), safety_checker=None, feature_extractor=None, requires_safety_checker=False
    )
    made.set_progress_bar_config(disable=True)
    return made


def measure(work: Callable[[], object], device: str) -> tuple[float, float | None]:
    """Seconds of some work, and its peak memory in GiB on a GPU."""
    cuda = torch.device(device).type == "cuda"
    synchronize(device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 2**30 if cuda else None


def clear(device: str) -> None:
    """Free memory and compiled code of what ran before."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def matmul_limit(device: str) -> float:
    """TFLOP/s of large bf16 matrix products."""
    side = 8192 if torch.device(device).type == "cuda" else 256
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    seconds, _ = measure(lambda: [left @ right for _ in range(20)], device)
    return 20 * 2 * side**3 / seconds / 1e12


def profile(work: Callable[[], object], *, longest: int = 25) -> list[dict[str, Any]]:
    """The kernels that take the longest, in milliseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)[:longest]
    rows = [{"ms": round(each.self_device_time_total / 1e3, 2), "count": each.count, "kernel": each.key[:100]} for each in events]
    print(*rows, sep="\n", flush=True)
    return rows
