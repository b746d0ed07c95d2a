"""Tiny parts that every study can run on in a second or two."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.spec import PartSpec
from counterfoil.studies.base import StudySettings, world
from counterfoil.studies.runs import Runs
from tests.worlds import FAKES, arrays

MODEL, OTHER = f"python:{FAKES}:TinyModel", f"python:{FAKES}:Another"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> StudySettings:
    """StudySettings over tiny parts; studies of one session share the folder, and so their runs."""
    folder = tmp_path_factory.mktemp("studies")
    data = arrays(folder / "data.npz", 24)
    return StudySettings(
        folder=folder,
        data=PartSpec(name=f"tensors:{data}"),
        generator=PartSpec(name="pixels:l2", options={"epsilon": 0.2}),
        oracle=PartSpec(name="daylight:"),
        images=24,
        search={"budget": 3, "step": 0.05},
    )


@pytest.fixture(scope="session")
def runs(tiny: StudySettings) -> Runs:
    return Runs(tiny)


def lab_settings() -> StudySettings:
    """Settings over the parts of the lab."""
    known = world()
    assert known is not None
    parts = {role: getattr(known.parts, role) for role in ("data", "generator", "oracle")}
    return StudySettings(Path(), models=(PartSpec(name="lab:narrow"),), **parts)
