"""What a mask saves on this machine, part by part of a climb, and how far its pictures are from the whole decoder's.

    python bench/sparse.py MASK [--generator lab:vqgan] [--model lab:narrow] [--oracle lab:clip] [--device cpu]
    python bench/sparse.py --full-size [--device cuda] [--windows 11 8] [--rows 32] [--precision bf16] [--whole fused]

The first form times a mask that `counterfoil study sparse` fitted; the study also says what becomes of FMR. The second needs no
weights: VQGAN f16-16384 at 256 pixels, a ResNet-50 and the picture tower of a CLIP ViT-B/32, all of them random, and windows
of so many of its 16 cells a side (11: 47 % of the picture, 8: 25 %). Whole and masked decoder take turns in the same run. With
`--whole` the whole one is `plain`, `compiled`, or `fused`, which is rebuilt from the engine's own layers and the fastest there
is; against the last two the masked one is compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterfoil import registry
from counterfoil.acceleration.generators import hastened
from counterfoil.generators.latent import LatentGenerator
from counterfoil.generators.vqgan.configuration import Architecture
from counterfoil.generators.vqgan.generator import VqganAutoencoder
from counterfoil.generators.vqgan.network import Vqgan
from counterfoil.models.module import ModuleModel
from counterfoil.models.preprocessing import Preprocessing
from counterfoil.parts import Generator, Model, Oracle, Verdicts
from counterfoil.sparse import Mask, SparseGenerator, WindowedGenerator, load, masked
from counterfoil.sparse.saving import PARTS, Saving, measure

CHANNELS, CELLS = 256, 16
SHAPE = Architecture(
    n_embed=16384, embed_dim=CHANNELS, z_channels=CHANNELS, ch=128, ch_mult=(1, 1, 2, 2, 4), num_res_blocks=2, resolution=256,
    attn_resolutions=(16,),
)  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """What takes part in a measurement."""

    generators: dict[str, SparseGenerator]  # by name of the window
    dense: Generator
    model: Model
    oracle: Oracle
    images: Tensor


@dataclass(frozen=True)
class Tower:
    """The picture half of a CLIP with random weights, asked as an oracle is."""

    module: Any

    def bind(self, classes: Any) -> Tower:
        """Nothing to prepare."""
        return self

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts that mean nothing and cost what real ones do."""
        small = torch.nn.functional.interpolate(images, size=224, mode="bilinear", antialias=True)
        score = self.module(pixel_values=small).image_embeds.float().mean(1)
        return Verdicts(torch.ones_like(labels, dtype=torch.int8), score, labels)


def full_size(asked: argparse.Namespace) -> Scene:
    """The paper's set-up with random weights."""
    from torchvision.models import resnet50
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    torch.manual_seed(0)
    layout = torch.channels_last if asked.device == "cuda" else torch.contiguous_format
    network = Vqgan(replace(SHAPE, ch=asked.width)).to(asked.device).to(memory_format=layout)
    generator = LatentGenerator(VqganAutoencoder(network, factor=SHAPE.factor), size=SHAPE.resolution)
    dense = _whole(generator, asked)
    usual = Preprocessing(size=(224, 224), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    model = ModuleModel(resnet50(weights=None), [str(number) for number in range(1000)], preprocessing=usual).to(asked.device)
    config = CLIPVisionConfig(patch_size=32, image_size=224)
    tower = CLIPVisionModelWithProjection(config).eval().requires_grad_(False).to(asked.device)
    coarse = torch.rand(asked.rows, 3, 16, 16, device=asked.device)
    images = torch.nn.functional.interpolate(coarse, size=SHAPE.resolution, mode="bicubic").clamp(0, 1)
    windows: dict[str, SparseGenerator] = {
        f"window {side}×{side}": WindowedGenerator(generator, _square(side)) for side in asked.windows
    }
    if asked.whole != "plain":
        for each in windows.values():
            each.render = torch.compile(each.render)  # type: ignore[method-assign]
    return Scene(windows, dense, model, Tower(tower), images)


def _whole(generator: LatentGenerator, asked: argparse.Namespace) -> Generator:
    """The generator that decodes whole pictures, in the form that was asked for."""
    if asked.whole == "fused":
        fast = hastened(generator, torch.bfloat16 if asked.precision == "bf16" else torch.float32)
        assert fast is not None, "the engine does not know this decoder"
        return fast
    other = LatentGenerator(generator.autoencoder, size=generator.size)
    if asked.whole == "compiled":
        other.render = torch.compile(other.render)  # type: ignore[method-assign]
    return other


def fitted(asked: argparse.Namespace) -> Scene:
    """A fitted mask with the parts it is for."""
    generator = registry.create("generator", asked.generator).to(asked.device)
    model = registry.create("model", asked.model).to(asked.device)
    data = registry.create("dataset", "lab:wardrobe", {"count": asked.rows})
    oracle = registry.create("oracle", asked.oracle).to(asked.device).bind(data.classes)
    images = torch.stack([data.load(sample, generator.size or 64) for sample in data]).to(asked.device)
    return Scene({asked.mask.name: masked(generator, load(asked.mask))}, generator, model, oracle, images)


def main() -> None:
    """Measure and print."""
    asked = arguments()
    if asked.device == "cpu":
        torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    scene = full_size(asked) if asked.full_size else fitted(asked)
    half = torch.autocast(asked.device, torch.bfloat16) if asked.precision == "bf16" else contextlib.nullcontext()
    found: dict[str, Any] = {}
    for name, sparse in scene.generators.items():
        with half:
            saving = measure(sparse, scene.model, scene.images, oracle=scene.oracle, dense=scene.dense, rounds=asked.rounds)
        found[name] = tell(name, sparse, saving, asked)
    if asked.json is not None:
        machine = torch.cuda.get_device_name() if asked.device == "cuda" else platform.processor() or platform.machine()
        about = {"machine": machine, "torch": torch.__version__, "python": platform.python_version()}
        options = {key: value for key, value in vars(asked).items() if isinstance(value, (int, float, str, list))}
        asked.json.write_text(json.dumps({**about, "asked": options, "found": found}, indent=2) + "\n", encoding="utf-8")


def tell(name: str, sparse: SparseGenerator, saving: Saving, asked: argparse.Namespace) -> dict[str, Any]:
    """Print one mask's figures, and give them back."""
    kept = sparse.mask.kept
    print(f"{name}: {int(kept.sum())} of {kept.numel()} coordinates kept, window {sparse.provenance().get('window', 'none')}")
    both = (saving.dense, saving.sparse)
    parts = {part: [1000 * float(np.median(rows[:, place])) for rows in both] for place, part in enumerate(PARTS)}
    for part, (dense, less) in parts.items():
        print(f"  {part:<22} whole {dense:9.2f} ms   masked {less:9.2f} ms   for {asked.rows} pictures")
    told: dict[str, Any] = {"milliseconds, whole and masked": parts, "step": saving.step, "psnr": float(np.median(saving.psnr))}
    low, middle, high = saving.step
    print(f"  masked / whole, a step: {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {asked.rounds} of each in turn)")
    for budget in (10, 50):
        low, middle, high = told[f"climb of {budget}"] = saving.ratio(budget)
        print(f"  masked / whole, a start and {budget} steps: {middle:.3f} ({low:.3f} to {high:.3f})")
    print(f"  PSNR of the masked picture to the whole decoder's after {asked.rounds + 1} steps: {told['psnr']:.1f} dB")
    return told


def _square(side: int) -> Mask:
    """A square in the middle of the latent."""
    kept = torch.zeros(CHANNELS, CELLS, CELLS, dtype=torch.bool)
    first = (CELLS - side) // 2
    kept[:, first : first + side, first : first + side] = True
    return Mask(kept)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mask", type=Path, nargs="?")
    parser.add_argument("--full-size", action="store_true")
    parser.add_argument("--windows", type=int, nargs="+", default=[11, 8])
    parser.add_argument("--generator", default="lab:vqgan")
    parser.add_argument("--model", default="lab:narrow")
    parser.add_argument("--oracle", default="lab:clip")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--whole", choices=("plain", "compiled", "fused"), default="plain")
    parser.add_argument("--width", type=int, default=SHAPE.ch, help="channels of the finest layers; fewer for a rehearsal")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.full_size == (asked.mask is not None):
        parser.error("give a MASK that 'counterfoil study sparse' wrote, or --full-size")
    return asked


if __name__ == "__main__":
    main()
