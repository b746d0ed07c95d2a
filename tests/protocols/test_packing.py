"""Large runs keep their images in zips, whatever the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import protocols, store
from counterfoil.store import writer
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets


@pytest.mark.parametrize("world", [pets, squares])
def test_a_large_staged_run_packs_its_images_and_is_read_resumed_and_corrected_alike(tmp_path: Path, monkeypatch, world) -> None:
    whole = protocols.run(world.spec(), tmp_path / "files", given=world.make_parts())
    monkeypatch.setattr(writer, "PACKED_FROM", 2)
    packed = protocols.run(world.spec(), tmp_path / "zips", given=world.make_parts())
    assert list(packed.trials) == list(whole.trials)
    assert packed.results == whole.results
    named = {name for trial in packed.trials for name in (trial.clean, trial.reconstruction, trial.image) if name}
    assert named and not [name for name in named if (packed.path / name).exists()]
    images = store.Images(packed.path)
    assert all(images.at(name).read_bytes() == (whole.path / name).read_bytes() for name in named)
    tables = {path.name: path.read_bytes() for path in (packed.path / "stages").glob("*.jsonl")}
    protocols.run(world.spec(), tmp_path / "zips", given=world.make_parts())  # nothing is made again
    assert {path.name: path.read_bytes() for path in (packed.path / "stages").glob("*.jsonl")} == tables
    assert not [name for name in named if (packed.path / name).exists()]
