"""The review under load: 50 reviewers on loopback, each judging an image every two seconds and loading the next.

    python -m bench.review_load [--seconds 30] [--reviewers 50] [--database URL] [--keep NAME]

Prints how long votes took and how many failed. Exit code 1 if one failed or the 99th percentile reaches 250 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from bench.results import add_keep, command, keep
from PIL import Image

from counterfoil import store
from counterfoil.core.records import Prediction, Trial, Verdict

LIMIT = 0.250  # seconds, for the 99th percentile
EVERY = 2.0  # seconds between two votes of a reviewer
CLASSES = tuple(f"class {number}" for number in range(20))
SPEC = {"model": {"name": "bench:model"}, "oracle": {"name": "bench:oracle"}, "seed": 0, "search": {"budget": 1}}


def make_run(path: Path, images: int) -> None:
    """A run with images of noise."""
    draw = np.random.default_rng(0)
    with store.write(path, SPEC, CLASSES, {"images": images, "size": 64}) as writer:
        for number in range(images):
            stream = io.BytesIO()
            Image.fromarray(draw.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "PNG")
            name, label = store.image_name(stream.getvalue()), number % len(CLASSES)
            trial = Trial(f"{number}", "guided", label, number, "budget", 1, 2, clean=name, reconstruction=name, image=name)
            said = [Verdict(trial.trial_id, picture, "bench:oracle", True, 1.0, label) for picture in ("clean", "made")]
            right = [Prediction(trial.trial_id, picture, "bench:model", label, True, 1.0, 1.0) for picture in ("clean", "made")]
            writer.add([trial], right, said, [stream.getvalue()])


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


def main() -> int:
    """Start a server, put the load on it, print and keep the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--database", default="")
    add_keep(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_run(Path(folder) / "bench", given.images)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        serve = [sys.executable, "-m", "counterfoil.cli", "serve", folder, "--port", str(port), "--database", given.database]
        with subprocess.Popen(serve, stdout=subprocess.PIPE) as server:
            assert server.stdout and server.stdout.readline()
            try:
                times = asyncio.run(load(port, reviewers=given.reviewers, seconds=given.seconds))
            finally:
                server.terminate()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    about = f"{given.reviewers} reviewers for {given.seconds:g} s, one vote every {EVERY:g} s each, {given.images} images."
    rows = [row("votes", times.votes), row("images", times.images)]
    print(about, *rows, sep="\n")
    if given.keep:
        keep(given.keep, rows, command=command("bench.review_load"), about=about, covers=["src/counterfoil/web"])
    print(f"CPU       {used.ru_utime + used.ru_stime:6.1f} s used by the server, its start included")
    print(f"failed    {len(times.failures):6}   {'; '.join(times.failures[:3])}")
    return int(rows[0]["99 % ms"] >= 1000 * LIMIT or bool(times.failures))


if __name__ == "__main__":
    sys.exit(main())
