"""Time the way of a new user: minutes from `pip install` to the verdict of `counterfoil check`, for some numbers of photos.

    python -m bench.stopwatch SETUP [--photos 100 500] [--device cuda] [--install] [--keep NAME]

SETUP is what `examples/own_classes/run.py --only-make` leaves: photos/ by class, model.pth and preset.yaml, whose parts are there
and not fetched. Where there are too few photos, mirrored and cropped ones are added. With --install, the package is first
installed into an environment of its own with its extras, from the index that pip is set up for. Every photo is tested.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.results import ROOT, add_keep, command, print_checked
from PIL import Image, ImageOps

import counterfoil

EXTRAS = "timm,hf,diffusion,sparse"
STEPS = ("model", "accuracy", "oracle", "generator", "time")  # lines of `check`, each told when it is known


def install(folder: Path) -> float:
    """Seconds of an installation as the README has it."""
    began = time.monotonic()
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "-q", f"{ROOT}[{EXTRAS}]"], check=True)
    return time.monotonic() - began


def gather(setup: Path, count: int, out: Path) -> int:
    """Write so many photos into a folder, evenly over the classes, and return their number."""
    folders = sorted(path for path in (setup / "photos").iterdir() if path.is_dir())
    for number, folder in enumerate(folders):
        wanted = count // len(folders) + (number < count % len(folders))
        files = sorted(folder.iterdir())
        (out / folder.name).mkdir(parents=True)
        for at in range(wanted):
            with Image.open(files[at % len(files)]) as photo:
                turn, own = divmod(at, len(files))
                cut = 4 * (turn // 2)
                made = photo.convert("RGB").crop((cut, cut, photo.width - cut, photo.height - cut))
                made = ImageOps.mirror(made) if turn % 2 else made
                made.save(out / folder.name / f"{turn}-{own}.png")
    return count


def rows(asked: argparse.Namespace, folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Minutes until each line of `check` and until its verdict, for each number of photos."""
    installing = install(folder / "venv") if asked.install else None
    for count in asked.photos:
        photos = folder / f"photos-{count}"
        gather(asked.setup, count, photos)
        began, said = time.monotonic(), {}

        def tell(line: str, began: float = began, said: dict[str, float] = said) -> None:
            print(f"  {time.monotonic() - began:7.1f} s  {line}", file=sys.stderr, flush=True)
            if line.split()[0] in STEPS:
                said[line.split()[0]] = (time.monotonic() - began) / 60

        where = {"preset": asked.setup / "preset.yaml", "out": folder / f"run-{count}", "device": asked.device}
        done = counterfoil.check(asked.setup / "model.pth", photos, tell=tell, **where)
        minutes = (time.monotonic() - began) / 60
        row = {"photos": count, "device": asked.device, "cores": os.cpu_count()}
        row |= {"install": round(installing / 60, 1)} if installing is not None else {}
        row |= {f"until {name}": round(said[name], 2) for name in STEPS if name in said}
        yield row | {"until the verdict": round(minutes, 2), "verdict": done.verdict[0]}, ""


def main() -> None:
    """Print a row per number of photos."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setup", type=Path)
    parser.add_argument("--photos", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--install", action="store_true")
    add_keep(parser)
    asked = parser.parse_args()
    about = (
        "Minutes from installation to the verdict of `check`, on real photos of ten classes and a fine-tuned EfficientNet-Lite0."
    )
    with tempfile.TemporaryDirectory() as folder:
        print_checked(rows(asked, Path(folder)), asked.keep, command=command("bench.stopwatch"), about=about)


if __name__ == "__main__":
    main()
