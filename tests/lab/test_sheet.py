"""Contact sheets show what was asked for, where it was asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from lab.training import sheet
from PIL import Image

from counterfoil.core.errors import UsageError
from counterfoil_lab.world import FACTORS, shipped


def test_pictures_lie_row_by_row() -> None:
    images = torch.stack([torch.full((3, 64, 64), value) for value in (0.0, 0.5, 1.0)])
    picture = sheet.tiled(images, columns=2)
    assert picture.size == (2 * 66 + 2, 2 * 66 + 2)
    assert picture.getpixel((100, 30)) == (128, 128, 128)
    assert picture.getpixel((30, 100)) == (255, 255, 255)


def test_crossing_covers_every_pair() -> None:
    scenes = sheet.crossed(shipped("tune"), down="domain", across="weather", seed=0)
    pairs = set(zip(scenes.factors["domain"].tolist(), scenes.factors["weather"].tolist(), strict=True))
    assert len(scenes) == len(pairs) == len(FACTORS["domain"]) * len(FACTORS["weather"])


def test_command_writes_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sheet.png"
    monkeypatch.setattr(sys, "argv", ["sheet", str(out), "--count", "6", "--columns", "3", "--enlarge", "2"])
    sheet.main()
    assert Image.open(out).size == (2 * (3 * 66 + 2), 2 * (2 * 66 + 2))


@pytest.mark.parametrize("place", ["nowhere/sheet.png", "sheet.nothing"])
def test_a_sheet_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sheet", str(tmp_path / place), "--count", "1"])
    with pytest.raises(UsageError, match=f"{place}: cannot be written"):
        sheet.main()
