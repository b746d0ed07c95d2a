"""Every command's help can be read whole on a terminal of 80 columns, and shows an example; the list of all imports none."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import COMMANDS, app, load


def help_of(*path: str) -> str:
    found = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80"})
    assert found.exit_code == 0
    return found.output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help_is_whole_fits_and_has_an_example(name: str) -> None:
    command, text = load(name), help_of(name)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    words = " ".join(text.split())
    for option in command.params:
        assert " ".join((getattr(option, "help", None) or "").split()) in words
    assert command.help.splitlines()[0] == COMMANDS[name].summary
    assert f"counterfoil {name}" in text.partition("Usage:")[2].partition("\n")[2]


def test_commands_are_listed_whole_under_headings() -> None:
    listed = help_of()
    headings = list(dict.fromkeys(entry.heading for entry in COMMANDS.values()))
    places = [listed.index(f"\n{heading}:\n") for heading in headings]
    assert places == sorted(places) and max(map(len, listed.splitlines())) <= 80
    for name, entry in COMMANDS.items():
        assert f"  {name} " in listed and entry.summary in " ".join(listed.split())


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("app.app(['--help'], standalone_mode=False)", ["numpy", "torch", "pydantic", "pyarrow", "yaml", "scipy", "rich.table"]),
        ("for name in app.COMMANDS: app.load(name)", ["torch"]),
    ],
    ids=["the list of commands imports no command", "no command needs torch for its help"],
)
def test_help_imports_little(code: str, unwanted: list[str]) -> None:
    program = f"import sys; from counterfoil.cli import app\n{code}\nassert not {{*{unwanted}}} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_a_misspelt_command_is_answered_by_the_one_meant() -> None:
    found = CliRunner().invoke(app, ["reprot"])
    assert found.exit_code == 2 and "Did you mean 'report'" in found.output
