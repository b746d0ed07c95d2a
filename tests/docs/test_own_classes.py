"""The example of classes of one's own: how its photos are sorted, its autoencoder, and the preset that it writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
import yaml

from counterfoil.doctor.check import read_preset
from counterfoil.doctor.gradients import psnr
from counterfoil.parts import images, registry

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_classes"
SHARED = next((folder / "shared" for folder in EXAMPLE.parents if (folder / "shared" / "natural-parts").is_dir()), None)
NOUNS = """  1 a line of the licence
01503061 05 n 01 bird 0 001 @ 01471682 n 0000 | a kind of vertebrate
01471682 05 n 01 vertebrate 0 000 | with a spine
01558993 05 n 02 robin 0 redbreast 0 002 @ 01503061 n 0000 ~ 01471682 n 0000 | a kind of bird
09999999 17 n 01 stone 0 000 | of no class
"""


def load():
    spec = importlib.util.spec_from_file_location("own_classes_run", EXAMPLE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_noun_is_of_the_first_class_among_its_hypernyms(tmp_path):
    run = load()
    (tmp_path / "data.noun").write_text(NOUNS)
    kinds = run.hypernyms(tmp_path)
    named = {noun: run.class_of(noun, kinds) for noun in ("n01558993", "n01471682", "n09999999")}
    assert named == {"n01558993": run.NAMES.index("bird"), "n01471682": run.NAMES.index("reptile or fish"), "n09999999": -1}
    groups = run.group(tmp_path)
    assert groups["bird"] == ["n01558993"] and not groups["dog"]


def test_rows_of_the_old_head_count_as_examples(tmp_path):
    run = load()
    draw = torch.Generator().manual_seed(0)
    rows, truth = torch.eye(10).repeat(20, 1), torch.arange(10).repeat(20)
    photos = torch.eye(10)[:2] + 0.1 * torch.randn(2, 10, generator=draw)
    head = run.fit(photos, torch.tensor([0, 1]), rows, truth)
    assert (head.predict(torch.eye(10).numpy()) == list(range(10))).all()  # eight of which have no photo


@pytest.mark.skipif(SHARED is None, reason="needs ../shared, with TAEF2 and photos")
def test_photos_come_back_from_the_autoencoder_of_its_preset(tmp_path):
    file = tmp_path / "preset.yaml"
    file.write_text(yaml.safe_dump(load().preset(SHARED / "natural-parts", SHARED / "dinov2-small", tmp_path / "groups.json")))
    known = read_preset(file)
    assert [each.name.partition(":")[0] for each in known.oracles] == ["probe", "classifier"]
    generator = registry.create("generator", known.generators[0].name, known.generators[0].options)
    photos = torch.stack([images.read(path, 128) for path in sorted((SHARED / "natural").glob("*/*.jpg"))[:4]])
    numbers = torch.arange(4)
    with torch.no_grad():
        again = generator.render(generator.start(photos, numbers, numbers))
    assert psnr(photos, again).median() > 25
