"""Time how quickly a report of thousands of pairs opens, scrolls, filters and turns pages, in a real Chromium.

    python -m bench.report --pairs 5000 [--out FOLDER] [--keep NAME]
    python -m bench.report --trials 200000 [--out FOLDER] [--keep NAME]

With --trials the run is that large, of 1,000 classes, and its gallery as large as by default; writing the report is held to 60 s
and 2 GiB. Making the run up takes minutes, and it is kept in the folder that --out names.

A pair is a source image with what was made of it, in both arms. The report is opened from disk in a fresh browser context each
time, so nothing is cached by the browser; the time runs from the start of the navigation until the page has loaded, the
gallery is drawn, and every image in sight is decoded. Exits with 1 if the median is over the limit.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.results import add_keep, command, keep
from tests.browser.conftest import HOW, chromium
from tests.report.made import Plan, build

from bench import made_up
from counterfoil import store
from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.protocols.reading import open_run, write_report
from counterfoil.store import Run

LIMIT = 2.0  # seconds to open
WRITTEN, MEMORY = 60.0, 2.0  # seconds and GiB to write a report of many trials

OPENED = """async () => {
  const sight = [...document.images].filter((image) => image.getBoundingClientRect().top < innerHeight);
  await Promise.all(sight.map((image) => image.decode().catch(() => null)));
  return performance.now() / 1000;
}"""

SCROLLED = """() => new Promise((done) => {
  const frames = [];
  let before = performance.now();
  const step = () => {
    const now = performance.now();
    frames.push(now - before);
    before = now;
    scrollBy(0, 300);
    if (scrollY + innerHeight + 2 < document.documentElement.scrollHeight && frames.length < 400) requestAnimationFrame(step);
    else done(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""

FILTERED = """() => {
  const begun = performance.now();
  const field = document.querySelector("#gallery-filters [name=outcome]");
  field.value = "fooled";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.body.offsetHeight;
  const filtered = performance.now();
  document.getElementById("page-on").click();
  document.body.offsetHeight;
  return [filtered - begun, performance.now() - filtered];
}"""


def large(path: Path, trials: int) -> Run:
    """A run of so many trials in two arms, half of whose guided images fool the model; made up, or read where it is there."""
    if path.exists():
        return open_run(path)
    data, draw = made_up.Images(trials // 2), np.random.default_rng(0)
    part = {role: {"name": f"{role}:made-up", "options": {}} for role in ("model", "data", "generator", "oracle")}
    spec = {"protocol": "fmr", **part, "seed": 0, "search": {"budget": made_up.STEPS}}
    with store.write(path, spec, data.classes, {"size": made_up.SIDE, "images": len(data)}) as writer:
        for sample in data:
            made = made_up.outcome(sample)
            wrong = {"predicted": (sample.label + 1) % 1000, "correct": False, "confidence": float(draw.random())}
            fooled = f"{sample.image_id}#guided" if draw.random() < 0.5 else ""
            said = [replace(each, model="model:made-up", **(wrong if each.picture == "made" and each.trial_id == fooled else {}))
                    for each in made.predictions]  # fmt: skip
            writer.add(made.trials, said, [replace(each, oracle="oracle:made-up") for each in made.verdicts], made.images)
        writer.flush()
        writer.finish(fmr_results(open_run(path)))
    return open_run(path)


def visit(browser: Any, address: str) -> dict[str, float]:
    """One visit: seconds to open, and milliseconds for the rest."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#cards .card", state="attached")
    opened = page.evaluate(OPENED)
    frames = page.evaluate(SCROLLED)
    filtered, turned = page.evaluate(FILTERED)
    context.close()
    slowest = sorted(frames)[int(0.95 * (len(frames) - 1))]
    return {"open": opened, "frame": statistics.median(frames), "frame95": slowest, "filter": filtered, "turn": turned}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--trials", type=int, help="of a large run; its gallery is as large as by default")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for run and report; one that is there is used again")
    add_keep(parser)
    given = parser.parse_args()
    path = chromium()
    if path is None:
        sys.exit(HOW)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        spent, memory = 0.0, 0.0
        if given.trials or not (folder / "report" / "index.html").exists():
            names = tuple(f"class {number:04d}" for number in range(given.classes))
            plan = Plan(images=given.pairs, classes=names, side=given.side)
            run = large(folder / "run", given.trials) if given.trials else build(folder / "run", plan)
            begun = time.perf_counter()
            write_report([run], folder / "report", **({} if given.trials else {"pictures": given.pairs}))
            spent = time.perf_counter() - begun
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"report written in {spent:.1f} s, {memory:.2f} GiB")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            visits = [visit(browser, (folder / "report" / "index.html").as_uri()) for _ in range(given.repeats)]
            version = browser.version
            browser.close()
    middle = {name: statistics.median(each[name] for each in visits) for name in visits[0]}
    size = f"{given.trials:,} trials, 1,000 classes" if given.trials else f"{given.pairs:,} pairs, {given.classes} classes"
    print(f"{size}, Chromium {version}, median of {given.repeats} visits")
    fastest = min(each["open"] for each in visits)
    print(f"open until all in sight is drawn  {middle['open']:6.2f} s    (fastest {fastest:.2f} s, limit {LIMIT} s)")
    print(f"a frame while scrolling           {middle['frame']:6.1f} ms   (19 of 20 within {middle['frame95']:.1f} ms)")
    print(f"filter all pairs                  {middle['filter']:6.1f} ms")
    print(f"turn a page                       {middle['turn']:6.1f} ms")
    if given.keep:
        rows = [
            {"what": "open until all in sight is drawn, s", "median": middle["open"]},
            {"what": "a frame while scrolling, ms", "median": middle["frame"]},
            {"what": "19 of 20 frames within, ms", "median": middle["frame95"]},
            {"what": "filter all pairs, ms", "median": middle["filter"]},
            {"what": "turn a page, ms", "median": middle["turn"]},
        ]
        if given.trials:
            rows += [{"what": "written in, s", "median": spent}, {"what": "memory to write it, GiB", "median": memory}]
        about = f"A report of {size}, in Chromium {version}; {given.repeats} visits."
        keep(given.keep, rows, command=command("bench.report"), about=about)
    sys.exit(middle["open"] > LIMIT or (bool(given.trials) and (spent > WRITTEN or memory > MEMORY)))


if __name__ == "__main__":
    main()
