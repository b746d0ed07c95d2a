"""Real photos, real ImageNet models, the whole way: three networks, each judged by the other two, under several generators.

    python examples/real_photos/run.py PHOTOS [--images 40] [--out real-photos] [--device cuda]

PHOTOS is a folder with one sub-folder per class, named by ImageNet's names or WordNet ids. With --styles FOLDER (images),
--encoder FILE and --decoder FILE (the published AdaIN weights), style transfer is a third generator. --networks and
--families take some of them alone. A run that is there already is not made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterfoil import protocols
from counterfoil.core.progress import watching
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.reading import write_report
from counterfoil.store import Run

LITE = Path(__file__).with_name("lite.py")
NETWORKS = ("lite0", "lite1", "lite2")
ROWS = ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction", "PA_random", "VR", "steps")


def main() -> None:
    """Run what is asked for, print a table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("real-photos"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--families", nargs="+", choices=("transforms", "pixels", "style"))
    for name in ("--styles", "--encoder", "--decoder"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    runs = []
    for name, family in families(asked).items():
        if asked.families is not None and name not in asked.families:
            continue
        made = [run(asked, network, name, family) for network in asked.networks]
        table(name, asked.networks, made)
        runs += made
    print(f"Report: {write_report(runs, asked.out / 'report')}")


def families(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The generators and how the search moves in each."""
    found: dict[str, dict[str, Any]] = {
        "transforms": {"generator": "transforms:", "search": {"step": 0.1, "budget": 5, "norm": "l2"}},
        "pixels": {
            "generator": {"name": "pixels:linf", "epsilon": "2/255"},
            "search": {"step": 0.5 / 255, "budget": 5, "norm": "sign", "unit": "absolute"},
        },
    }
    if asked.styles is not None:
        style = {"name": f"style:{asked.styles}", "encoder": str(asked.encoder), "decoder": str(asked.decoder)}
        found["style"] = {"generator": style, "search": {"step": 0.2, "budget": 5}}
    return found


def run(asked: argparse.Namespace, network: str, name: str, family: dict[str, Any]) -> Run:
    """One network under one generator, the other two networks its oracle."""
    others = [f"classifier:python:{LITE}:{other}" for other in NETWORKS if other != network]
    spec = protocols.parse(
        {
            "model": f"python:{LITE}:{network}",
            "data": str(asked.photos),
            "oracle": {"name": "ensemble:", "members": others, "rule": "mean"},
            "limit": asked.images,
            "size": 224,
            "device": asked.device,
            **family,
        }
    )
    assert isinstance(spec, FmrSpec)
    with watching(f"{network} under {name}") as (watch, tell):
        return protocols.run(spec, asked.out / f"{network}-{name}", watch=watch, tell=tell)


def table(name: str, networks: Sequence[str], runs: list[Run]) -> None:
    """The numbers of one generator, a column a network."""
    print(f"\n{name}: per cent with 95 % intervals")
    print(" " * 18 + "".join(f"{network:>26}" for network in networks))
    for row in ROWS:
        print(f"{row:<18}" + "".join(f"{_cell((each.results or {})[row]):>26}" for each in runs))


def _cell(entry: dict[str, Any]) -> str:
    if entry["value"] is None:
        return "–"
    return f"{entry['value']:.1f} ({entry['low']:.1f} to {entry['high']:.1f})"


if __name__ == "__main__":
    main()
