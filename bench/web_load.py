"""Load the web pages: a report of thousands of pairs in a real Chromium, and a review by many people at a time.

    python -m bench.web_load report [--pairs 5000] [--out FOLDER] [--keep NAME]
    python -m bench.web_load review [--seconds 30] [--reviewers 50] [--database URL] [--keep NAME]

A pair is a source image with what was made of it, in both arms. The report is opened from disk in a fresh browser context each
time; the time runs from the start of the navigation until the gallery is drawn and every image in sight is decoded. With more
pairs than a gallery holds, writing the report is held to 60 s and 2 GiB. Reviewers are on loopback, each judging an image every
two seconds and loading the next. Exit code 1 if visits or votes are over their limits, or a vote failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from bench.results import add_keep, command, keep

from bench import made_up
from counterfoil import store
from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.protocols.reading import open_run, write_report

OPEN, WRITTEN, MEMORY = 2.0, 60.0, 2.0  # seconds to open; seconds and GiB to write a report
VOTE = 0.250  # seconds, for the 99th percentile
EVERY = 2.0  # seconds between two votes of a reviewer
SIDE = 64
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VISIT = {
    "open": "open until all in sight is drawn, s",
    "frame": "a frame while scrolling, ms",
    "frame95": "19 of 20 frames within, ms",
    "filter": "filter all pairs, ms",
    "turn": "turn a page, ms",
}
Rows = list[dict[str, Any]]

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


def make_run(path: Path, images: int) -> store.Run:
    """A run of two arms, half of whose guided images fool the model; read where it is there."""
    if path.exists():
        return open_run(path)
    data, draw = made_up.Images(images), np.random.default_rng(0)
    part = {role: {"name": f"{role}:made-up", "options": {}} for role in ("model", "data", "generator", "oracle")}
    spec = {"protocol": "fmr", **part, "seed": 0, "search": {"budget": made_up.STEPS}}
    with store.write(path, spec, data.classes, {"size": SIDE, "images": len(data)}) as writer:
        for sample in data:
            made = made_up.outcome(sample, SIDE)
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


def report(given: argparse.Namespace, folder: Path) -> tuple[Rows, list[str], str]:
    """Write a report, visit it, and name what is over its limit."""
    from playwright.sync_api import sync_playwright

    path = given.browser or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        sys.exit("no Chromium found; give its path with --browser")
    run = make_run(folder / "run", given.pairs)
    began = time.perf_counter()
    write_report([run], folder / "report", images=given.pairs)
    spent, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        visits = [visit(browser, (folder / "report" / "index.html").as_uri()) for _ in range(given.repeats)]
        version = browser.version
        browser.close()
    middle = {name: statistics.median(each[name] for each in visits) for name in visits[0]}
    rows = [{"what": VISIT[name], "median": round(value, 2)} for name, value in middle.items()]
    rows += [{"what": "written in, s", "median": round(spent, 1)}, {"what": "GiB to write it", "median": round(memory, 2)}]
    limits = {"opening": (middle["open"], OPEN), "writing": (spent, WRITTEN), "memory": (memory, MEMORY)}
    over = [f"{name} {value:.2f}, at most {limit:g}" for name, (value, limit) in limits.items() if value > limit]
    return rows, over, f"A report of {given.pairs:,} pairs, 1,000 classes, in Chromium {version}; {given.repeats} visits."


@dataclass
class Times:
    """Seconds that requests took, and what went wrong."""

    votes: list[float] = field(default_factory=list)
    images: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Link:
    """A connection that is kept, as browsers do."""

    def __init__(self, port: int, token: str = "") -> None:
        self._port, self._headers = port, f"Host: localhost\r\n{f'Authorization: Bearer {token}' if token else ''}"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """The status and content that the server answers."""
        content = b"" if body is None else json.dumps(body).encode()
        head, answer = await self._send(method, path, content, "application/json")
        return int(head.split(" ", 2)[1]), answer

    async def send_form(self, path: str, **fields: str) -> tuple[str, str]:
        """The address a form leads to, and the page it answers with."""
        head, answer = await self._send("POST", path, urlencode(fields).encode(), "application/x-www-form-urlencoded")
        return head.partition("location: ")[2].partition("\r\n")[0], answer.decode()

    async def _send(self, method: str, path: str, content: bytes, kind: str) -> tuple[str, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\n{self._headers.rstrip()}\r\nContent-Type: {kind}\r\n"
        writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("content-length: ")[2].partition("\r\n")[0])
        return answer, await reader.readexactly(length)


async def reviewer(port: int, key: str, token: str, *, until: float, draw: random.Random, times: Times) -> None:
    """One reviewer: judge, load the next image, wait."""
    link = Link(port, token)
    await asyncio.sleep(draw.random() * EVERY)
    _, content = await link.ask("POST", f"/review/{key}/next", {})
    while time.perf_counter() < until:
        began = time.perf_counter()
        turn = json.loads(content)
        said = {"item": turn["item"]["id"], "present": True, "single": True, "usable": draw.random() < 0.9}
        status, content = await link.ask("POST", f"/review/{key}/votes", said)
        times.votes.append(time.perf_counter() - began)
        if status != 200:
            times.failures.append(f"{status} {content[:120]!r}")
            return
        began_image = time.perf_counter()
        status, _ = await link.ask("GET", json.loads(content)["item"]["image"])
        times.images.append(time.perf_counter() - began_image)
        if status != 200:
            times.failures.append(f"{status} for an image")
        await asyncio.sleep(max(began + EVERY - time.perf_counter(), 0))


async def load(port: int, *, reviewers: int, seconds: float) -> Times:
    """Invite people and have them work for some seconds."""
    owner = Link(port)  # the server is open to anyone who is on this machine
    key = (await owner.send_form("/reviews", run="bench", votes="99", known="10"))[0].rpartition("/")[2]
    tokens = []
    for number in range(reviewers):
        _, page = await owner.send_form(f"/reviews/{key}/reviewers", name=f"reviewer {number}")
        tokens.append(page.partition("/enter#")[2].partition("<")[0])
    times, until = Times(), time.perf_counter() + seconds
    people = [
        reviewer(port, key, token, until=until, draw=random.Random(number), times=times) for number, token in enumerate(tokens)
    ]
    for outcome in await asyncio.gather(*people, return_exceptions=True):
        if isinstance(outcome, BaseException):
            times.failures.append(repr(outcome))
    return times


def row(name: str, seconds: list[float]) -> dict[str, Any]:
    """Return how long something took."""
    middle, high, top = (round(1000 * float(each), 1) for each in np.quantile(seconds, [0.5, 0.99, 1.0]))
    return {"what": name, "number": len(seconds), "median ms": middle, "99 % ms": high, "longest ms": top}


def review(given: argparse.Namespace, folder: Path) -> tuple[Rows, list[str], str]:
    """Start a server, put the load on it, and name what is over its limit."""
    make_run(folder / "bench", given.pairs)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "counterfoil", "serve", str(folder), "--port", str(port), "--database", given.database]
    with subprocess.Popen(serve, stdout=subprocess.PIPE) as server:
        assert server.stdout and server.stdout.readline()
        try:
            times = asyncio.run(load(port, reviewers=given.reviewers, seconds=given.seconds))
        finally:
            server.terminate()
    rows = [row("votes", times.votes), row("images", times.images)]
    slow = [f"99 % of votes within {rows[0]['99 % ms']} ms"] if rows[0]["99 % ms"] >= 1000 * VOTE else []
    about = f"{given.reviewers} reviewers for {given.seconds:g} s, one vote every {EVERY:g} s each, {given.pairs:,} images."
    return rows, [*times.failures[:3], *slow], about


def main() -> None:
    """Put one load on, print and keep the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=("report", "review"))
    parser.add_argument("--pairs", type=int, default=5000, help="images of the run")
    parser.add_argument("--repeats", type=int, default=5, help="visits of the report")
    parser.add_argument("--browser", help="path of a Chromium")
    parser.add_argument("--out", type=Path, help="folder for run and report; a run that is there is used again")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--database", default="")
    add_keep(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        rows, over, about = (report if given.page == "report" else review)(given, given.out or Path(temporary))
    print(about, *rows, sep="\n")
    if given.keep:
        covers = ["src/counterfoil/report"] if given.page == "report" else ["src/counterfoil/web"]
        keep(given.keep, rows, command=command("bench.web_load"), about=about, covers=covers)
    if over:
        sys.exit("; ".join(over))


if __name__ == "__main__":
    main()
