"""Trace which files of the product common jobs go through, on the lab, and write a table of them.

    python tools/walks.py [--only fmr,step,…] [--write]

A file counts if one of its functions is called; importing it alone does not. Lines are those of the whole file, blank ones
included. `--write` puts the table into docs/design/walks.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/counterfoil"
PAGE = ROOT / "docs/design/walks.md"
INTRO = """# How many files a job goes through

Product files in which a function is called, on the lab and a CPU; made by `python tools/walks.py --write`. A reader who follows a
job from its command to its result has to open these and no others. Lines are those of the whole files.

"""
LIMITS = {"fmr": (30, 4500), "step": (16, None), "lance": (40, None), "report": (20, None), "compare": (12, None)}
TITLES = {
    "fmr": "one FMR run, from specification to results",
    "step": "one guided step of a batch",
    "lance": "one LANCE run",
    "report": "`report` of an FMR run",
    "compare": "`compare` of two FMR runs",
}
FMR = {"generator": "lab:kl", "oracle": "lab:clip", "data": "lab:wardrobe", "limit": 4, "search": {"budget": 2}}


def trace(work: Callable[[], object]) -> list[Path]:
    """Return the files of the package whose functions some work calls, in whatever thread."""
    seen: set[str] = set()
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if (
            event == "call" and code.co_filename not in seen and code.co_flags & 2
        ):  # a function's, not a module's or a class's body
            seen.add(code.co_filename)
            if code.co_filename.startswith(f"{PACKAGE}/"):
                found.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(Path(name) for name in found if name.endswith(".py"))


def jobs(folder: Path, names: list[str]) -> dict[str, Callable[[], object]]:
    """Prepare what the jobs need and return them by name."""
    from counterfoil import protocols
    from counterfoil.cli.app import app
    from counterfoil.protocols.fmr.climbing import ClimbingSpace
    from counterfoil_lab.demo import LANCE

    specs = {model: protocols.parse({"model": f"lab:{model}", **FMR}) for model in ("narrow", "diverse")}
    made: dict[str, Callable[[], object]] = {"fmr": lambda: protocols.run(specs["narrow"], folder / "fmr")}
    made["lance"] = lambda: protocols.run(protocols.parse({**LANCE, "limit": 1, "others": []}), folder / "lance")
    if "step" in names:
        space = ClimbingSpace.of(specs["narrow"])
        made["step"] = guided_step(space.engine, next(iter(space.jobs(iter(space.dataset), lambda sample, problem: None))))
    if {"report", "compare"} & {*names}:
        runs = []
        for model, spec in specs.items():
            protocols.run(spec, folder / f"run-{model}")
            runs.append(str(folder / f"run-{model}"))
        made["report"] = lambda: app(["report", runs[0], "--out", str(folder / "page")], standalone_mode=False)
        made["compare"] = lambda: app(["compare", *runs], standalone_mode=False)
    return made


def guided_step(engine: Any, job: Any) -> Callable[[], object]:
    """Start an image, and return its first step: render, predict, differentiate, judge and move."""
    import torch

    from counterfoil.engine.guidance import Rows

    step, labels = engine.step, torch.tensor([job.label])
    guided = engine.arms()["guided"]
    _, state = step.start(job.image[None], labels, torch.tensor([job.seed]), names=["image"])

    def work() -> object:
        result = step.run(state, labels, gradient=True, names=["image"])
        rows = Rows(state[step.generator.moving], state["scale"], [job.seed], [0], [0.0])
        move = guided.direction(result.gradient(), rows)
        return result.assessments(), step.move(state, move)

    return work


def table(walks: dict[str, list[Path]]) -> str:
    """Return the table, and the files of every walk."""
    lines = ["| job | files | lines | target |", "|---|---|---|---|"]
    for name, files in walks.items():
        most, least_lines = LIMITS[name]
        limit = f"{most} files" + (f", {least_lines:,} lines" if least_lines else "")
        lines.append(f"| {TITLES[name]} | {len(files)} | {lines_of(files):,} | {limit} |")
    for name, files in walks.items():
        listed = ", ".join(f"`{file.relative_to(PACKAGE).as_posix()}`" for file in files)
        lines += ["", f"## {TITLES[name][0].upper()}{TITLES[name][1:]}", "", listed]
    return "\n".join(lines) + "\n"


def lines_of(files: list[Path]) -> int:
    """Return the number of lines of some files."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def main() -> None:
    """Trace the walks, print them and, if asked for, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(TITLES), help="jobs, separated by commas")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    asked = parser.parse_args()
    names = asked.only.split(",")
    with tempfile.TemporaryDirectory(prefix="walks-") as place:
        prepared = jobs(Path(place), names)
        text = table({name: trace(prepared[name]) for name in TITLES if name in names})
    print(text)
    if asked.write:
        PAGE.write_text(INTRO + text, encoding="utf-8")


if __name__ == "__main__":
    main()
