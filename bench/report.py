"""How quickly a report of thousands of pairs opens, scrolls, filters and turns pages, in a real Chromium.

    python -m bench.report --pairs 5000 [--out FOLDER] [--keep NAME]

A pair is a source image with what was made of it, in both arms. The report is opened from disk in a fresh browser context each
time, so nothing is cached by the browser; the time runs from the start of the navigation until the page has loaded, the
gallery is drawn, and every picture in sight is decoded. Exits with 1 if the median is over the limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.results import add_keep, command, keep
from tests.browser.conftest import HOW, chromium
from tests.report.made import Plan, build

from counterfoil.protocols.reading import write_report

LIMIT = 2.0  # seconds

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
        if not (folder / "report" / "index.html").exists():
            names = tuple(f"class {number:04d}" for number in range(given.classes))
            run = build(folder / "run", Plan(images=given.pairs, classes=names, side=given.side))
            begun = time.perf_counter()
            write_report([run], folder / "report", pictures=given.pairs)
            print(f"report written in {time.perf_counter() - begun:.1f} s")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
            visits = [visit(browser, (folder / "report" / "index.html").as_uri()) for _ in range(given.repeats)]
            version = browser.version
            browser.close()
    middle = {name: statistics.median(each[name] for each in visits) for name in visits[0]}
    print(f"{given.pairs} pairs, {given.classes} classes, Chromium {version}, median of {given.repeats} visits")
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
        about = f"A report of {given.pairs:,} pairs, {given.classes} classes, in Chromium {version}; {given.repeats} visits."
        keep(given.keep, rows, command=command("bench.report"), about=about)
    sys.exit(middle["open"] > LIMIT)


if __name__ == "__main__":
    main()
