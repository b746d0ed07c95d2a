"""A real network as a black box: EfficientNet-Lite0 as an ONNX file, searched by asking alone, within a budget of queries.

    python examples/real_photos/black_box.py PHOTOS [--images 48] [--queries 60] [--out black-box]

Lite0 and Lite2 are exported once; Lite0 is tested, Lite2 is the oracle. Images move inside an L∞ ball of 8/255. The control
takes random steps that are as long or longer, under the same oracle. What is compared is paired by image.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterfoil import protocols
from counterfoil.core.progress import watching
from counterfoil.metrics.estimate import mcnemar
from counterfoil.protocols.fmr import FmrSpec
from counterfoil.protocols.reading import write_report
from counterfoil.store import Run

sys.path.insert(0, str(Path(__file__).parent))
import lite

EPSILON = 8 / 255


def main() -> None:
    """Export, search, print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("black-box"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    tested, judge = export_onnx(0, asked.out), export_onnx(2, asked.out)
    spec = protocols.parse(
        {
            "model": tested,
            "data": str(asked.photos),
            "generator": {"name": "pixels:linf", "epsilon": EPSILON},
            "oracle": _as_oracle(judge),
            "limit": asked.images,
            "size": 224,
            # A step of twice the radius brings what it touches to the ball's other side.
            "search": {
                "budget": asked.queries,
                "queries": asked.queries,
                "step": 2 * EPSILON,
                "norm": "sign",
                "unit": "absolute",
            },
        }
    )
    assert isinstance(spec, FmrSpec)
    with watching("searching") as (watch, tell):
        made = protocols.run(spec, asked.out / f"run-{asked.queries}", watch=watch, tell=tell)
    tell_of(made, asked.queries)
    print(f"Report: {write_report([made], asked.out / 'report')}")


def export_onnx(variant: int, folder: Path) -> dict[str, Any]:
    """A network as an ONNX file with what it wants of its images, as a part of a specification."""
    file = folder / f"lite{variant}.onnx"
    model = (lite.lite0, lite.lite1, lite.lite2)[variant]()
    side = lite.SIDES[variant]
    if not file.exists():
        axes = {"pictures": {0: "n"}, "logits": {0: "n"}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model.module, (torch.zeros(1, 3, side, side),), str(file), dynamo=False,
                input_names=["pictures"], output_names=["logits"], dynamic_axes=axes,
            )  # fmt: skip
    wants = {"mean": 127, "std": 128, "scale": 255, "crop": side / (side + 32), "interpolation": "bicubic", "classes": "imagenet"}
    return {"name": f"onnx:{file}", "options": {"size": side, **wants}}


def _as_oracle(part: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"classifier:{part['name']}", "options": {"options": part["options"]}}


def tell_of(run: Run, queries: int) -> None:
    """Accuracy before, after and under the control, on the images whose both arms were accepted."""
    right: dict[str, dict[str, bool]] = {"clean": {}, "guided": {}, "random": {}}
    asked = []
    for trial in run.trials:
        if trial.arm == "guided" and trial.validated:
            asked.append(trial.queries)
    for prediction in run.predictions():
        image, _, arm = prediction.trial_id.rpartition("#")
        if prediction.picture == "made":
            right[arm][image] = prediction.correct
        elif prediction.picture == "clean":
            right["clean"][image] = prediction.correct
    both = [image for image in right["guided"] if image in right["random"]]
    rows = {name: np.array([answers[image] for image in both]) for name, answers in right.items()}
    print(f"{len(both)} of {len(right['clean'])} images validated; {np.mean(asked):.0f} queries an image, {queries} at most")
    for name, about in (("clean", "untouched"), ("random", "random steps"), ("guided", "searched")):
        print(f"  {about:<14} {100 * rows[name].mean():5.1f} % right")
    lost, won = int((rows["random"] & ~rows["guided"]).sum()), int((rows["guided"] & ~rows["random"]).sum())
    print(f"  search against random steps: {lost} images lost, {won} won, p = {mcnemar(lost, won):.2g} (exact McNemar)")


if __name__ == "__main__":
    main()
