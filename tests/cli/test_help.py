"""Every command's help can be read whole on a terminal of 80 columns, and shows an example; the list of all imports none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from counterfoil.cli.app import COMMANDS, app, load


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, groups included."""
    yield path, group
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each if path else load(name), (*path, name))


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


@pytest.mark.parametrize("path", [path for path, each in ALL.items() if hasattr(each, "commands") and path], ids=" ".join)
def test_no_description_in_a_list_of_commands_is_cut(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    listed = shown(path, monkeypatch).partition("\nCommands:\n")[2]
    assert listed
    assert "..." not in listed
    words = listed.split()
    for name, each in ALL[path].commands.items():
        assert name in words
        assert (each.short_help or each.help).split()[0] in words


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_list_is_the_first_line_of_the_commands_help(name: str) -> None:
    assert load(name).help.splitlines()[0] == COMMANDS[name].summary


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"counterfoil {name}" in shown((name,), monkeypatch).partition("Usage:")[2].partition("\n")[2]


def test_commands_are_listed_under_headings(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = shown((), monkeypatch)
    headings = list(dict.fromkeys(entry.heading for entry in COMMANDS.values()))
    places = [listed.index(f"\n{heading}:\n") for heading in headings]
    assert places == sorted(places)
    for name, entry in COMMANDS.items():
        assert f"  {name} " in listed
        assert entry.summary in " ".join(listed.split())


def in_a_process(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_the_list_of_commands_imports_no_command() -> None:
    in_a_process(
        "import sys; from counterfoil.cli import main\n"
        "sys.argv = ['counterfoil', '--help']\n"
        "try: main()\n"
        "except SystemExit as done: assert not done.code\n"
        "loaded = {'numpy', 'torch', 'pydantic', 'pyarrow', 'yaml', 'scipy'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


def test_no_command_needs_torch_for_its_help() -> None:
    in_a_process(
        "import sys; from counterfoil.cli.app import COMMANDS, load\n"
        "for name in COMMANDS: load(name)\n"
        "assert 'torch' not in sys.modules"
    )


def test_a_misspelt_command_is_answered_by_the_one_meant() -> None:
    found = CliRunner().invoke(app, ["reprot"])
    assert found.exit_code == 2
    assert "Did you mean 'report'" in found.output
