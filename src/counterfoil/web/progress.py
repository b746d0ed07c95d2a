"""How far a run is: read from its directory alone, without touching the lock of whoever writes there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from counterfoil.store import runfile
from counterfoil.store.chunks import RESULTS, Chunk, Contents, Damaged, manifest_path, numbers, read_chunk
from counterfoil.store.files import is_locked

State = Literal["finished", "under way", "stopped", "being added to"]

WORDS: dict[State, str] = {
    "finished": "finished",
    "under way": "under way",
    "stopped": "stopped half-way; the same command goes on with it",
    "being added to": "finished; a model or oracle is being asked about its pictures",
}


@dataclass(frozen=True)
class Progress:
    """A run's state and counts."""

    state: State
    images: int  # complete by now
    validated: int
    skipped: int
    expected: int | None  # images there will be
    per_second: float | None  # over the parts written so far; None when there are too few to tell
    stages: Mapping[str, int] = field(default_factory=dict)  # of protocols that go by stages: results so far, oldest first

    @property
    def share(self) -> float | None:
        """From 0 to 1."""
        if self.state in ("finished", "being added to"):
            return 1.0
        return min(self.images / self.expected, 1.0) if self.expected else None

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far."""
        if self.state != "under way" or not self.expected or not self.per_second:
            return None
        return max(self.expected - self.images, 0) / self.per_second


def progress(path: Path) -> Progress:
    """How far the run in `path` is; BadRun if it cannot be read."""
    described = runfile.load(path)
    total = described.provenance.get("images")
    counts, mark = {"images": 0, "accepted": 0, "skipped": 0}, Contents.of(path).mark
    written: list[tuple[float, int]] = []
    for number in numbers(path):
        part, when = _part(path, number)
        if part is None or part.mark != mark:
            continue
        for name in counts:
            counts[name] += getattr(part, name)
        if part.images:
            written.append((when, part.images))
    finished, held = (path / RESULTS).exists(), is_locked(path)
    state: State = ("being added to" if held else "finished") if finished else "under way" if held else "stopped"
    return Progress(
        state,
        images=counts["images"],
        validated=counts["accepted"],
        skipped=counts["skipped"],
        expected=total if isinstance(total, int) else None,
        per_second=_speed(written),
        stages=_stages(path / "stages"),
    )


_cache: dict[Path, tuple[int, Chunk, float]] = {}


def _part(path: Path, number: int) -> tuple[Chunk | None, float]:
    """A part and when it was written. Manifests never change, so one that was read is not read again."""
    manifest = manifest_path(path, number)
    try:
        status = manifest.stat()
        known = _cache.get(manifest)
        if known is None or known[0] != status.st_mtime_ns:
            if len(_cache) > 100_000:
                _cache.clear()
            known = _cache[manifest] = (status.st_mtime_ns, read_chunk(path, number), status.st_mtime)
        return known[1], known[2]
    except (OSError, Damaged):
        return None, 0.0


def _stages(folder: Path) -> dict[str, int]:
    """How many results each stage has, those of the stage under way included, in the order they were begun."""
    found: dict[str, tuple[int, int]] = {}
    for path in (*folder.glob("*.jsonl"), *folder.glob("*.parts/*.jsonl")):
        name = path.parent.stem if path.parent.suffix == ".parts" else path.stem
        try:
            begun, lines = path.stat().st_mtime_ns, path.read_bytes().count(b"\n")
        except OSError:  # merged meanwhile
            continue
        first, so_far = found.get(name, (begun, 0))
        found[name] = (min(first, begun), so_far + lines)
    return {name: lines for name, (_, lines) in sorted(found.items(), key=lambda item: item[1][0])}


def _speed(written: list[tuple[float, int]]) -> float | None:
    """Images a second since the first part; pauses between sittings count as what they are."""
    if len(written) < 2 or written[-1][0] <= written[0][0]:
        return None
    return sum(images for _, images in written[1:]) / (written[-1][0] - written[0][0])
