"""Runs that tests read, made once; each test has a folder of its own with copies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.made import Plan, build

from .world import World, world


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 images, 18 of them with a generated image."""
    folder = tmp_path_factory.mktemp("made")
    build(folder / "one", Plan(control=True))
    return folder


@pytest.fixture
def folder(run_folder: Path, tmp_path: Path) -> Path:
    """A folder with that run."""
    root = tmp_path / "runs"
    shutil.copytree(run_folder, root)
    return root


@pytest.fixture
def here(folder: Path) -> Iterator[World]:
    """An open server over it."""
    found = world(folder)
    yield found
    found.database.close()
