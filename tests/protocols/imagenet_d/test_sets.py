"""A set that was exported in any format says the same of itself when it is tested on again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from counterfoil import store
from counterfoil.core.records import Trial, Verdict
from counterfoil.core.spec import PlainSpec
from counterfoil.parts import images
from counterfoil.protocols.sets import LabelledSet, open_set
from counterfoil.report.export import LAYOUTS, export

READERS = {
    "folder": "folder:{}",
    "webdataset": "webdataset:{}/images-*.tar",
    "datasets": "hfdata:{}",
}
IDS = {"mug": ["n1", "n2"], "plate, dish": ["n3"], "owl": ["n4"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    """Mugs and owls on beaches and in forests; of the plates, which stand between them, none was kept."""
    spec = {"protocol": "imagenet-d", "painter": "p:", "oracle": "o:", "surrogates": ["m:a", "m:b"]}
    where = tmp_path_factory.mktemp("made") / "run"
    dice = torch.Generator().manual_seed(1)
    with store.write(where, spec=spec, classes=list(IDS), provenance={"class_ids": IDS}) as writer:
        for at, (label, word) in enumerate([(2, "beach"), (0, "forest"), (2, "forest"), (0, "beach")]):
            picture = images.png(torch.rand(3, 8, 8, generator=dice))
            words = {"factor": "background", "value": word, "prompt": f"something, in the {word}"}
            trial = Trial(f"{at}", "painted", label, at, "made", 0, 0, image=store.image_name(picture), **words)
            writer.add([trial], [], [Verdict(trial.trial_id, "made", "o:", True, 1.0, label)], [picture])
    return store.open_run(where)


def set_of(name: str, **options: int) -> LabelledSet:
    data = {"name": name, **options}
    return open_set(PlainSpec.model_validate({"protocol": "static", "model": "m:", "data": data}))


def contents_of(data: LabelledSet) -> list[tuple[str, dict[str, str], list[float]]]:
    """Every image's class, what the set says of it, and its pixels."""
    names, found = list(data.classes), []
    for sample in data.dataset:
        picture = data.dataset.load(sample, None)
        found.append((names[sample.label], data.about(sample), picture.flatten().tolist()))
    return sorted(found, key=lambda each: each[2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_format_comes_back_with_ids_nuisances_and_surrogates(
    run: store.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    if layout == "datasets":
        library = pytest.importorskip("datasets")
        monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    export(run, tmp_path / "set", layout=layout)
    data = set_of(READERS[layout].format(tmp_path / "set"))
    assert data.classes == {"mug": ("n1", "n2"), "owl": ("n4",)}
    assert data.known is not None and data.known.surrogates == ("m:a", "m:b")
    export(run, tmp_path / "folders")
    assert contents_of(data) == contents_of(set_of(f"folder:{tmp_path / 'folders'}"))
    assert {(name, about["nuisance"]) for name, about, _ in contents_of(data)} == {
        ("mug", "beach"), ("mug", "forest"), ("owl", "beach"), ("owl", "forest"),
    }  # fmt: skip
    assert all(about["kind"] == "background" and about["prompt"] for _, about, _ in contents_of(data))


def test_a_part_of_a_set_knows_what_the_set_knows(run: store.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "set")
    data = set_of(f"subset:{tmp_path / 'set'}", per_class=1)
    assert len(data.dataset) == 2 and data.classes == {"mug": ("n1", "n2"), "owl": ("n4",)}
    assert data.known is not None and {about["kind"] for _, about, _ in contents_of(data)} == {"background"}
