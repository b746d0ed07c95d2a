"""Runs Table 1's first two rows and prints them beside the published ones.

    python -m bench.table1.run --mnist FOLDER --cifar FOLDER --resnet18 model_test.pt [--images 500] [--step 0.03] [--out runs]

Only rows whose data are given are run. The same command goes on after an interruption.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from bench.table1.models import WEIGHTS

from counterfoil import protocols
from counterfoil.core import spec as specs
from counterfoil.studies import papers
from counterfoil.studies.papers import beside, ours

MODELS = "bench.table1.models"
HERE = os.path.relpath(WEIGHTS)  # as it is written into runs, which should not depend on where the project lies
STEPS = {"MNIST": 0.03, "CIFAR10": 0.003}  # at 0.03, CIFAR-10's finer latents leave nothing after two steps


def row(data: str, root: str, model: dict[str, Any], judge: str, generator: str, given: argparse.Namespace) -> specs.FmrSpec:
    """The specification of one row."""
    values = {
        "protocol": "fmr",
        "model": model,
        "data": {"name": f"torchvision-data:{data}", "root": root, "split": "test"},
        "generator": f"autoencoder:{HERE}/{generator}",
        "oracle": f"classifier:python:{MODELS}:{judge}",
        "limit": given.images,
        "device": given.device,
        "search": {"budget": given.budget, "step": given.step or STEPS[data]},
    }
    spec: specs.FmrSpec = protocols.parse(values)
    return spec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", help="folder with MNIST's idx files")
    parser.add_argument("--cifar", help="folder with CIFAR-10's binary batches")
    parser.add_argument("--resnet18", help="pyautoattack's model_test.pt")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--budget", type=int, default=50)
    parser.add_argument("--step", type=float, help="length of a step, instead of each row's own")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs") / "table1")
    given = parser.parse_args()
    rows: dict[str, specs.FmrSpec] = {}
    if given.mnist:
        lenet = {"name": f"python:{MODELS}:lenet"}
        rows["LeNet"] = row("MNIST", given.mnist, lenet, "mnist_judge", "mnist-vq", given)
    if given.cifar:
        if not given.resnet18:
            parser.error("--cifar needs --resnet18, the weights that come with pyautoattack")
        resnet = {"name": f"python:{MODELS}:resnet18", "weights": given.resnet18}
        rows["ResNet18"] = row("CIFAR10", given.cifar, resnet, "cifar_judge", "cifar-vq", given)
    if not rows:
        parser.error("name the data of a row, with --mnist or --cifar")
    source = papers.load("fmr")
    table = source.table(1)
    found = []
    for name, spec in rows.items():
        run = protocols.run(spec, given.out / name.lower(), tell=print)
        found += [(name, each) for each in ours.rows(run, table)]
    print("\n".join(beside.lines(source, table, found)))


if __name__ == "__main__":
    main()
