"""Copies of a run's images in the report: full, thumbnail, and what differs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from counterfoil.core.errors import BadRun
from counterfoil.report.page import StoredImage
from counterfoil.store import Images

LARGEST = 512  # side of an image in the report; the run directory keeps the original
SMALL = 144  # images up to this side are their own thumbnails
QUALITY = 92  # of copies for looking at
GAIN = 8  # how much a difference is amplified
OPEN = 8  # images held open
CELL, TEXT = 168, 12  # pixels of an image and of a letter in a figure


@dataclass
class ReportImages:
    """The report's images. Equal images are kept once, whatever run they come from."""

    out: Path
    missing: dict[Path, set[str]] = field(default_factory=dict)  # run directory → images that cannot be shown
    _kept: dict[tuple[Path, str], StoredImage | None] = field(default_factory=dict)
    _differences: dict[tuple[Path, str, str], StoredImage | None] = field(default_factory=dict)
    _open: dict[tuple[Path, str], Image.Image | None] = field(default_factory=dict)  # the last few, most of which come again

    def keep(self, run: Path, name: str) -> StoredImage | None:
        """The image `name` of a run directory in the report; None if the run has none or it cannot be read."""
        if not name:
            return None
        if (run, name) not in self._kept:
            image = self._read(run, name)
            self._kept[run, name] = None if image is None else self._store(image)
            if image is None:
                self.missing.setdefault(run, set()).add(name)
        return self._kept[run, name]

    def difference(self, run: Path, before: str, after: str) -> StoredImage | None:
        """An image of `after` minus `before`, amplified around mid-grey; None if there is nothing to compare."""
        if not before or not after:
            return None
        if (run, before, after) not in self._differences:
            first, second = self._read(run, before), self._read(run, after)
            comparable = first is not None and second is not None and first.size == second.size
            self._differences[run, before, after] = self._store(_amplify(first, second)) if comparable else None  # type: ignore
        return self._differences[run, before, after]

    def distance(self, run: Path, before: str, after: str) -> float | None:
        """The root mean square of what differs between two images, in grey levels of 255; None if one cannot be read."""
        first, second = (self._read(run, name) if name else None for name in (before, after))
        if first is None or second is None or first.size != second.size:
            return None
        one, two = (np.asarray(each, dtype=np.float64) for each in (first, second))  # (H, W, 3)
        return float(np.sqrt(((one - two) ** 2).mean()))

    def figure(self, rows: Sequence[Sequence[tuple[StoredImage, Sequence[str]]]], path: str) -> str:
        """Write images in a grid, each above its lines of text, as one PNG to take along; `path` is from the report's folder."""
        font, line = ImageFont.load_default(size=TEXT), TEXT + 4
        height = CELL + line * max(len(lines) for row in rows for _, lines in row) + TEXT
        sheet = Image.new("RGB", (max(map(len, rows)) * (CELL + TEXT) - TEXT, len(rows) * height), "white")
        pen = ImageDraw.Draw(sheet)
        for down, row in enumerate(rows):
            for across, (stored, lines) in enumerate(row):
                left, top = across * (CELL + TEXT), down * height
                with Image.open(self.out / stored.full) as image:
                    how = Image.Resampling.NEAREST if 2 * max(image.size) <= CELL else Image.Resampling.LANCZOS
                    sheet.paste(image.convert("RGB").resize((CELL, CELL), how), (left, top))
                for number, text in enumerate(lines):
                    while pen.textlength(text, font) > CELL:
                        text = text[:-2] + "…"
                    pen.text((left, top + CELL + 4 + number * line), text, "black", font)
        (self.out / path).parent.mkdir(parents=True, exist_ok=True)
        sheet.save(self.out / path)
        return path

    def _read(self, run: Path, name: str) -> Image.Image | None:
        if (run, name) not in self._open:
            while len(self._open) >= OPEN:
                del self._open[next(iter(self._open))]
            self._open[run, name] = _read(run, name)
        return self._open[run, name]

    def _store(self, image: Image.Image) -> StoredImage:
        """Small images as they are; of large ones a copy for looking at, as the run directory keeps the original."""
        if max(image.size) <= SMALL:
            return StoredImage(self._write("images", image, "PNG"))
        full, small = image.copy(), image.copy()
        full.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
        small.thumbnail((SMALL, SMALL), Image.Resampling.LANCZOS)
        return StoredImage(self._write("images", full, "JPEG"), self._write("thumbs", small, "JPEG"))

    def _write(self, folder: str, image: Image.Image, kind: str) -> str:
        stream = io.BytesIO()
        image.save(stream, kind, quality=QUALITY)
        data = stream.getvalue()
        path = f"{folder}/{hashlib.sha256(data).hexdigest()[:20]}.{'png' if kind == 'PNG' else 'jpg'}"
        target = self.out / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return path


def _amplify(before: Image.Image, after: Image.Image) -> Image.Image:
    first, second = (np.asarray(each, dtype=np.int16) for each in (before, after))  # (H, W, 3)
    return Image.fromarray(np.clip(128 + GAIN * (second - first), 0, 255).astype(np.uint8))


@lru_cache(maxsize=16)
def _images(run: Path) -> Images:
    return Images(run)


def _read(run: Path, name: str) -> Image.Image | None:
    """An image of a run directory; None if it is missing or damaged, or if no image of a run can have the name."""
    try:
        content = _images(run).at(name).read_bytes()
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            return image.convert("RGB")
    except (BadRun, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
