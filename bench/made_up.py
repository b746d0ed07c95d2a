"""Images without pixels and climbs without an engine, for trying out everything around them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from counterfoil.core.errors import BadImage
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.base import Outcome
from counterfoil.store import image_name

SIDE = 8
STEPS = 5
OWN = 3 * SIDE * SIDE  # bytes of noise that are an image's own; larger ones share the rest


@dataclass(frozen=True)
class Images:
    """A data set of so many images."""

    count: int
    classes: Sequence[str] = tuple(f"class {number}" for number in range(1000))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Sample]:
        for number in range(self.count):
            yield Sample(f"image-{number:010d}", number % 1000, f"made-up/{number // 1000:07d}/{number:010d}.jpg")

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """There is nothing to load."""
        raise BadImage(f"{sample.source}: made up")


def outcome(sample: Sample, side: int = SIDE) -> Outcome:
    """Return what a run would record of an image: two arms, four images, five steps, from the image's id alone."""
    seed = hashlib.blake2b(sample.image_id.encode(), digest_size=32).digest()
    pictures = {kind: png(seed + kind.encode(), side) for kind in ("clean", "reconstruction", "guided", "random")}
    names = {kind: image_name(content) for kind, content in pictures.items()}
    trials, predictions, verdicts = [], [], []
    for arm in ("guided", "random"):
        losses = tuple((seed[at] + at) / 64 for at in range(STEPS + 1))
        trial = Trial(
            sample.image_id, arm, sample.label, int.from_bytes(seed[:7], "big"), "budget", STEPS, STEPS + 1,
            source=sample.source, source_sha256=seed.hex(), clean=names["clean"], reconstruction=names["reconstruction"],
            image=names[arm], image_sha256=names[arm][-68:-4], image_bytes=len(pictures[arm]),
            path_loss=losses, path_predicted=(sample.label,) * (STEPS + 1), path_score=losses,
        )  # fmt: skip
        trials.append(trial)
        shown = ("clean", "reconstruction", "made") if arm == "guided" else ("made",)
        for picture in shown:
            chance = seed[len(picture)] / 255
            predictions.append(Prediction(trial.trial_id, picture, "made:up", sample.label, True, chance, chance))
            verdicts.append(Verdict(trial.trial_id, picture, "made:up", True, chance, sample.label))
    return Outcome(tuple(trials), tuple(predictions), tuple(verdicts), tuple(pictures.values()))


def png(seed: bytes, side: int = SIDE) -> bytes:
    """An image of noise as a PNG file, written out by hand: an encoder would take longer than the store.  # side × side"""
    noise = hashlib.shake_128(seed).digest(OWN) + _shared_pixels(side)
    rows = b"\0" + b"\0".join([noise[at : at + 3 * side] for at in range(0, len(noise), 3 * side)])
    size = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return _SIGN + _chunk(b"IHDR", size) + _chunk(b"IDAT", zlib.compress(rows, 0)) + _TAIL


@cache
def _shared_pixels(side: int) -> bytes:
    return hashlib.shake_128(b"").digest(3 * side * side - OWN)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_SIGN = b"\x89PNG\r\n\x1a\n"
_TAIL = _chunk(b"IEND", b"")
