"""Does the instrument read right? FMR of the lab's classifiers whose order is known, over generators and seeds.

    python bench/instrument.py [--images 300] [--generators lab:vqgan,lab:kl] [--seeds 0,1] [--models lab:narrow,lab:diverse]

`diverse` was trained on the whole world, `narrow` on its studio corner. Where training is all that differs, FMR has to
put them in that order, and the controls have to stay near the plain reconstruction.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from counterfoil import spec as specs
from counterfoil.metrics.table import row
from counterfoil.protocols import fmr

SHOWN = ("SA", "VR", "PA_reconstruction", "PA_random", "PA", "FMR", "FMR_matched", "steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--models", default="lab:narrow,lab:diverse")
    parser.add_argument("--generators", default="lab:vqgan,lab:kl")
    parser.add_argument("--seeds", default="0,1")
    given = parser.parse_args()
    for generator in given.generators.split(","):
        for seed in map(int, given.seeds.split(",")):
            for model in given.models.split(","):
                data = {"name": "lab:wardrobe", "count": given.images, "seed": seed}
                spec = specs.parse({"model": model, "data": data, "generator": generator, "oracle": "lab:clip", "seed": seed})
                with tempfile.TemporaryDirectory() as folder:
                    scores = fmr.run(spec, Path(folder) / "run").scores
                cells = [f"{name} {line.value} ({line.interval})" for name in SHOWN if (line := row(name, scores[name]))]
                print(f"{generator} seed {seed} {model}: {', '.join(cells)}, n {scores['FMR'].n}", flush=True)


if __name__ == "__main__":
    main()
