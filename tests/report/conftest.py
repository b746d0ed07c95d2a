"""One run and its report, made once for all tests that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.protocols.reading import write_report
from counterfoil.store import Run

from .made import Plan, build


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of every kind of outcome."""
    return build(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(scope="session")
def report(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    return write_report([run], tmp_path_factory.mktemp("report") / "one").parent


@pytest.fixture(scope="session")
def pair(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report over two runs that differ in the model and the step."""
    other = build(tmp_path_factory.mktemp("runs") / "two", Plan(model="python:n", step=0.5))
    return write_report([run, other], tmp_path_factory.mktemp("report") / "two").parent
