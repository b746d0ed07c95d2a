"""Two runs as the same test: their settings, the parts that shape the images, and the images they start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from counterfoil import store
from counterfoil.core.errors import UsageError
from counterfoil.core.records import Arm, Trial
from counterfoil.core.spec import FREE, EngineSpec, StagesSpec
from counterfoil.report.provenance import check_sources, differences, differences_in_sources
from counterfoil.store import Run

ONE, TWO = "1" * 64, "2" * 64


def make_run(path: Path, *, parts: Any = None, pixels: str = "", arm: Arm = "source", ids: str | None = None, **spec: Any) -> Run:
    """A run of three images with what is asked of its parts and images, and nothing else."""
    provenance = {"size": 64, "parts": parts or {}, **({"data": ids} if ids else {})}
    with store.write(path, {"protocol": "lance", **spec}, ("ant",), provenance) as writer:
        for number in range(3):
            digest = {"image_sha256" if arm == "painted" else "source_sha256": f"{pixels} {number}"} if pixels else {}
            writer.add([Trial(f"image {number}", arm, 0, 0, "made", 0, 0, source=f"{number}.png", **digest)], [], [])
        writer.flush()
    return store.open_run(path)


@pytest.mark.parametrize("role", ["captioner", "rewriter", "editor", "encoder", "oracle", "painter", "generator"])
def test_a_part_that_shapes_the_images_must_have_the_same_weights(tmp_path: Path, role: str) -> None:
    runs = [
        make_run(tmp_path / name, parts={role: {"unet": digest, "library": f"version {name}"}, "model": {"weights": digest}})
        for name, digest in (("a", ONE), ("b", TWO))
    ]
    assert [each.partition(" (")[0] for each in differences(runs)] == [f"{role} unet"]
    assert differences([runs[0], runs[0]]) == []


def test_surrogates_must_have_the_same_weights_and_tested_models_need_not(tmp_path: Path) -> None:
    runs = [
        make_run(
            tmp_path / name,
            protocol="imagenet-d",
            surrogates=[{"name": "timm:s", "options": {}}],
            models=[{"name": "timm:m", "options": {}}],
            parts={"timm:s": {"weights": digest}, "timm:m": {"weights": digest}},
        )
        for name, digest in (("a", ONE), ("b", TWO))
    ]
    assert [each.partition(" (")[0] for each in differences(runs)] == ["surrogate timm:s weights"]


def test_what_changes_no_compared_number_may_differ(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", engine={"batch": 16, "workers": 1}, realism={"language": None}, edit={"words": None})
    two = make_run(
        tmp_path / "b", engine={"batch": 4, "workers": 8}, realism={"language": "lab:rewriter"}, edit={"words": "mine"}
    )
    assert differences([one, two]) == ["edit.words (none / mine)"]


def test_fields_say_themselves_that_they_change_no_number() -> None:
    """A new option of the engine either says so, or makes two runs another test."""
    changing = {"precision", "compile"}
    assert {f"engine.{name}" for kind in (EngineSpec, StagesSpec) for name in kind.model_fields} == {
        *(key for key in FREE if key.startswith("engine.")), *(f"engine.{name}" for name in changing)
    }  # fmt: skip
    assert {"device", "strict"} <= {*FREE} and not {"seed", "limit", "search.step"} & {*FREE}


@pytest.mark.parametrize("arm", ["guided", "source", "painted"])
def test_the_same_ids_of_other_images_are_refused(tmp_path: Path, arm: Arm) -> None:
    one, two, three = (make_run(tmp_path / name, arm=arm, pixels=pixels) for name, pixels in (("a", "p"), ("b", "q"), ("c", "p")))
    assert check_sources([one, three]) == ""
    with pytest.raises(UsageError, match="the same image ids stand for other images"):
        check_sources([one, two])
    assert differences_in_sources([one, two]) == ["pixels of 3 of 3 source images"]
    assert differences_in_sources([one, three]) == []


def test_the_same_data_may_lie_elsewhere(tmp_path: Path) -> None:
    here, there, other, unknown = (
        make_run(tmp_path / name, data={"name": f"folder:/{name}/photos", "options": {}}, ids=ids)
        for name, ids in (("a", ONE), ("b", ONE), ("c", TWO), ("d", None))
    )
    assert differences([here, there]) == []
    assert differences([here, other]) == ["data.name (folder:/a/photos / folder:/c/photos)"]
    assert differences([here, unknown]) == ["data.name (folder:/a/photos / folder:/d/photos)"]


def test_long_values_that_differ_late_differ(tmp_path: Path) -> None:
    one, two = (make_run(tmp_path / name, edit={"words": f"{'long/' * 20}{name}.yaml"}) for name in ("a", "b"))
    assert differences([one, two]) == ["edit.words (…long/long/long/long/a.yaml / …long/long/long/long/b.yaml)"]
