"""Images, and small models that libraries save, once for all tests of the parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.parts.oracles.saved import save_clip, save_openclip, save_siglip
from tests.parts.scenes import boxes


@pytest.fixture(scope="session")
def square_scenes() -> list[Image.Image]:
    return [boxes(seed, 256, 256) for seed in range(12)]


@pytest.fixture(scope="session")
def oblong_scenes() -> list[Image.Image]:
    return [boxes(seed, 240 + 31 * seed, 301 - 13 * seed) for seed in range(4)]


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="session")
def siglip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_siglip(tmp_path_factory.mktemp("siglip"))


@pytest.fixture(scope="session")
def openclip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_openclip(tmp_path_factory.mktemp("openclip"))
