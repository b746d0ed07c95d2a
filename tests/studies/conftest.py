"""Tiny parts that every study can run on in a second or two."""

from __future__ import annotations

import pytest

from counterfoil.core.spec import PartSpec
from counterfoil.studies.bench import Bench, Settings
from tests.worlds import FAKES, arrays

MODEL, OTHER = f"python:{FAKES}:TinyModel", f"python:{FAKES}:Another"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings over tiny parts; studies of one session share the folder, and so their runs."""
    folder = tmp_path_factory.mktemp("studies")
    data = arrays(folder / "data.npz", 24)
    return Settings(
        folder=folder,
        data=PartSpec(name=f"tensors:{data}"),
        generator=PartSpec(name="pixels:l2", options={"epsilon": 0.2}),
        oracle=PartSpec(name="daylight:"),
        images=24,
        search={"budget": 3, "step": 0.05},
    )


@pytest.fixture(scope="session")
def bench(tiny: Settings) -> Bench:
    return Bench(tiny)
