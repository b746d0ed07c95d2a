"""The command in an empty folder, and a small run by it."""

from __future__ import annotations

import sys

import pytest

from counterfoil import cli
from tests.worlds import FAKES, folder

MODEL, GENERATOR, ORACLE = f"python:{FAKES}:TinyModel", "brightness:", "daylight:"


@pytest.fixture
def counterfoil(tmp_path, monkeypatch, capfd):
    """Runs the command in an empty folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["counterfoil", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = capfd.readouterr()
        return ended.value.code, output.out, output.err

    return call


@pytest.fixture
def run(counterfoil, tmp_path):
    """`counterfoil run` over a small folder, with some options changed."""

    def call(**changes: object) -> tuple[int, str, str]:
        data = changes.pop("data", None) or folder(tmp_path / "data")
        extra = changes.pop("extra", [])
        named = {"model": MODEL, "data": data, "generator": GENERATOR, "oracle": ORACLE, "size": 16, "out": "run", **changes}
        return counterfoil(
            "run", *[word for key, value in named.items() for word in (f"--{key}", value)], "--set", "budget=2", *extra
        )

    return call
