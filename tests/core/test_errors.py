"""Errors in one line; the package without its extras: a run from start to report, and the line that installs a library."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from counterfoil.core.errors import EXTRAS, missing, one_line

ROOT = Path(__file__).parents[2]
BLOCKED = """
import sys
from counterfoil.core.errors import EXTRAS
sys.modules.update(dict.fromkeys(EXTRAS))  # as if none of them were installed
from counterfoil.cli import main
main()
"""
PARTS = """
import torch
from counterfoil.parts.contracts import Verdicts

class Model(torch.nn.Module):
    def forward(self, images):
        light = images.mean((1, 2, 3))
        return torch.stack([light * 9 - 4, 4 - light * 9], 1)

def model():
    return Model(), ["light", "dark"]

class Oracle:
    def bind(self, classes):
        return self
    def judge(self, images, labels):
        return Verdicts(torch.ones(len(images), dtype=torch.long), torch.ones(len(images)), labels)
    def to(self, device):
        return self
"""


def test_an_error_over_several_lines_becomes_one() -> None:
    assert one_line(ValueError("bad  header\n  at byte 3\n")) == "bad header at byte 3"


def test_a_long_one_is_cut_where_it_shows() -> None:
    assert one_line(ValueError("x" * 300), longest=10) == "xxxxxxxxx…"
    assert len(one_line(ValueError("x" * 300))) == 200


def test_one_that_says_nothing_is_called_by_its_kind() -> None:
    assert one_line(TimeoutError()) == "TimeoutError"


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", BLOCKED, *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("core")
    (place / "parts.py").write_text(PARTS)
    for name, level in (("dark", 30), ("light", 220)):
        (place / "data" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (16, 16), (level + number,) * 3).save(place / "data" / name / f"{number}.png")
    return place


def options(**parts: str) -> list[str]:
    given = {"model": "python:parts.py:model", "oracle": "python:parts.py:Oracle", "generator": "pixels:l2", "data": "data"}
    return [word for role, name in {**given, **parts}.items() for word in (f"--{role}", name)]


def test_a_run_and_its_report_need_no_extra(folder: Path) -> None:
    made = command(folder, "run", *options(), "--size", "16", "--set", "budget=2", "--out", "run")
    assert made.returncode == 0, made.stderr
    assert "6 images" in made.stdout
    for words in (("report", "run"), ("gate", "run", "--min", "sa=1"), ("export", "run", "--out", "set"), ("list",)):
        done = command(folder, *words)
        assert done.returncode == 0, (words, done.stderr)


@pytest.mark.parametrize(
    ("option", "name", "extra"),
    [
        ("model", "timm:resnet18", "timm"),
        ("model", "torchvision:resnet18", "timm"),
        ("model", "hf:org/name", "hf"),
        ("model", "openclip:ViT-B-32/openai", "openclip"),
        ("model", "http://127.0.0.1:1/", "http"),
        ("oracle", "clip:org/name", "hf"),
        ("data", "hfdata:org/name", "data"),
        ("data", "torchvision-data:MNIST", "timm"),
    ],
)
def test_a_part_without_its_library_names_the_line_that_installs_it(folder: Path, option: str, name: str, extra: str) -> None:
    done = command(folder, "run", *options(**{option: name}), "--size", "16", "--out", "other")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"which is not installed; run: pip install 'counterfoil[{extra}]'"), done.stderr


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    assert len(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]) == 10


def test_an_error_that_wraps_a_missing_library_names_it_too() -> None:
    wrapped = RuntimeError("Failed to import something")
    wrapped.__cause__ = ModuleNotFoundError("No module named 'peft.x'", name="peft.x")
    assert missing(wrapped) == "needs peft, which is not installed; run: pip install 'counterfoil[lora]'"
    assert missing(ModuleNotFoundError("x", name="somebodys.module")) is None
    assert missing(ValueError("x")) is None
