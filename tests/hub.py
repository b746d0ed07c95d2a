"""The hub's cache on disk, for tests that load by repository name without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def put_in_cache(monkeypatch: pytest.MonkeyPatch, cache: Path, folder: Path, repository: str) -> str:
    """Put a folder into an empty cache as if it had been downloaded from `repository`, and turn the network off."""
    home = cache / f"models--{repository.replace('/', '--')}"
    shutil.copytree(folder, home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    offline(monkeypatch, cache)
    return repository


def offline(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """No network, and this folder as the cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
