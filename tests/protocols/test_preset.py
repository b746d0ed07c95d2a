"""FMR as published with stand-ins in the places and formats of the published weights: it takes a model and data alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import BadWeights
from counterfoil.protocols.fmr.wording import citation
from counterfoil_lab.parts import WEIGHTS
from tests.generators.vqgan.conftest import save_run, weights_of
from tests.hub import put_in_cache

NEEDED = {"preset": "paper", "model": "lab:narrow", "data": {"name": "lab:wardrobe", "count": 2}}


def test_the_preset_runs_on_the_published_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put_in_cache(monkeypatch, tmp_path / "cache", WEIGHTS / "clip", "openai/clip-vit-base-patch32")
    folder, small = Path("logs/vqgan_imagenet_f16_16384"), {"ch_mult": [1, 1, 1, 1, 2], "attn_resolutions": []}
    for name in ("checkpoints", "configs"):
        (folder / name).mkdir(parents=True)
    save_run(folder / "configs", **small)
    torch.save({"state_dict": weights_of("VQModel", **small)}, folder / "checkpoints" / "last.ckpt")
    few = {**NEEDED, "search": {"budget": 1, "control": "none", "accept": "agreement"}, "force": True}
    run = protocols.run(protocols.parse(few), tmp_path / "run")
    assert run.provenance["size"] == 224
    assert "preset paper but for search.budget 1, search.accept agreement." in citation(run, run.results or {})


def test_what_is_missing_is_named_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadWeights, match=r"preset paper needs the authors' VQGAN in logs/.*last.ckpt from https://heibox"):
        protocols.run(protocols.parse(NEEDED), tmp_path / "run")
