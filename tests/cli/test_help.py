"""Every command's help can be read whole on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from counterfoil.cli.app import app


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, groups included."""
    yield path, group
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


def shown(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    found = CliRunner().invoke(app, [*path, "--help"])
    assert found.exit_code == 0
    return found.output


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_lines_fit_and_options_are_described_in_full(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(path, monkeypatch).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    words = " ".join(" ".join(lines).split())
    for option in ALL[path].params:
        if getattr(option, "help", None):
            assert " ".join(option.help.split()) in words


@pytest.mark.parametrize("path", [path for path, each in ALL.items() if hasattr(each, "commands")], ids=" ".join)
def test_no_description_in_a_list_of_commands_is_cut(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    listed = shown(path, monkeypatch).partition("\nCommands:\n")[2]
    assert listed
    assert "..." not in listed
    words = listed.split()
    for name, each in ALL[path].commands.items():
        assert name in words
        assert (each.short_help or each.help).split()[0] in words
