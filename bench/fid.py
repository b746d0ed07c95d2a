"""The Fréchet distance with Inception's features, as LANCE measures it: does it rise as pictures get worse?

    python -m bench.fid --features inception.pt --photos FOLDER [--scale 255] [--shift 0] [--limit 200]

`inception.pt` is the network of FID as a TorchScript program that takes pictures of side 299; docs/lance.md says where one can be
had and what values it wants. The photos are held against themselves, and against themselves blurred more and more.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from counterfoil.parts import images
from counterfoil.parts.encoders import torchscript
from counterfoil.protocols.lance.realism import frechet

BLURS = (0.0, 1.0, 2.0, 4.0)  # standard deviation in pixels
BATCH = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=255.0)
    parser.add_argument("--shift", type=float, default=0.0)
    parser.add_argument("--limit", type=int, default=200)
    given = parser.parse_args()
    paths = sorted(path for path in given.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))[: given.limit]
    network = torchscript.load(given.features, scale=given.scale, shift=given.shift)
    plain = measured(network, paths, 0.0)
    print(f"{len(plain)} photos, {plain.shape[1]} features")
    for blur in BLURS:
        distance, note = frechet(plain, plain if blur == 0 else measured(network, paths, blur))
        print(f"blurred by {blur:g} pixels: {distance:8.2f}   {note}", flush=True)


@torch.no_grad()
def measured(network: torchscript.ScriptFeatures, paths: list[Path], blur: float) -> np.ndarray:
    """The photos' features, one row each."""
    rows = []
    for start in range(0, len(paths), BATCH):
        for path_features in network.embed_images(torch.stack([read(path, blur) for path in paths[start : start + BATCH]])):
            rows.append(path_features.double().numpy())
    return np.array(rows)


def read(path: Path, blur: float) -> Tensor:
    """A photo of side 299, blurred.  # (3, 299, 299)"""
    picture = images.fit(images.read(path)[None], 299)[0]
    return gaussian_blur(picture, kernel_size=6 * int(blur) + 1, sigma=blur) if blur else picture


if __name__ == "__main__":
    main()
