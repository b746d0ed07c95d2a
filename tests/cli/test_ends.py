"""Ends of the command: one line and an exit code, whatever a part, the system or foreign text does."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counterfoil import cli
from counterfoil.core import process
from counterfoil.core.errors import printable
from tests.cli.stored import call
from tests.report.made import Plan, build

FAKE = """
import sys, types
from counterfoil.cli import app, echo, main
from counterfoil.core.errors import BadData

def fake() -> None:
    "Fake."
    {body}

sys.modules["counterfoil.cli.fake"] = types.ModuleType("fake")
sys.modules["counterfoil.cli.fake"].fake = fake
app.COMMANDS["fake"] = app.Entry("Test", "fake:fake", "Fake.")
sys.argv = ["counterfoil", "fake"]
main()
"""


def run_command(body: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A command with this body, run to its end."""
    found = subprocess.run(
        [sys.executable, "-c", FAKE.format(body=body)], stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        **({"stdout": subprocess.PIPE} | options),  # type: ignore[call-overload]
    )  # fmt: skip
    assert "Traceback" not in found.stderr
    return found


def test_a_part_that_ends_the_process_is_a_failure() -> None:
    found = run_command("sys.exit(0)")
    assert found.returncode == 1
    assert found.stderr == "counterfoil: a part ended the process (sys.exit(0)); what is finished is kept\n"


def test_termination_is_told_as_an_interruption() -> None:
    found = run_command("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)")
    assert found.returncode == cli.INTERRUPTED
    assert found.stderr.startswith("counterfoil: interrupted;")
    assert found.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        found = run_command("echo('x')", stdout=full)
    assert found.returncode == 1
    assert found.stderr == "counterfoil: the output cannot be written (No space left on device); what is finished is kept\n"


def test_a_name_that_is_too_long_is_one_line() -> None:
    found = run_command("open('x' * 5000)")
    assert found.returncode == 2
    assert found.stderr.endswith("File name too long\n")
    assert found.stderr.count("\n") == 1
    assert len(found.stderr) < 300


def test_control_characters_of_others_reach_no_terminal() -> None:
    found = run_command(r"echo('a\x1b]0;pwn\x07\ud800'); raise BadData('b\x1b[31m\nc\u202e.png')")
    assert found.stdout == "a\\x1b]0;pwn\\x07\\ud800\n"
    assert found.stderr == "counterfoil: b\\x1b[31m c\\u202e.png\n"


def test_all_output_of_commands_is_cleaned() -> None:
    for path in Path(cli.__file__).parent.glob("*.py"):
        printed = re.findall(r"typer\.echo\(|(?<![.\w])print\(|std(?:out|err)\.write\(", path.read_text())
        assert len(printed) == (path.name == "__init__.py"), path  # where `echo` is


def test_what_is_readable_stays() -> None:
    assert printable("für 日本語\t→ 👩‍🔬\n") == "für 日本語\t→ 👩‍🔬\n"


def test_waiting_threads_sleep_unless_asked_otherwise() -> None:
    body = "import os; print(os.environ['OMP_WAIT_POLICY'])"
    asked = {key: value for key, value in os.environ.items() if key not in process.WAITING}
    assert run_command(body, env=asked).stdout == "passive\n"
    assert run_command(body, env={**asked, "OMP_WAIT_POLICY": "active"}).stdout == "active\n"


# `report` and `board` on a disk that takes no more: one line, and the same command works once there is space


COMMANDS = {
    "report": ["report", "one", "-o", "out"],
    "board": ["board", "one", "-o", "out", "--images", "4"],
    "export": ["export", "one", "-o", "out"],
}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write beyond so many bytes of a file, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    build(folder / "one", Plan())
    return folder


@pytest.mark.parametrize("room", [0, 40, 1_000])  # not even the marker, half of it, the first files
@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_command_works_once_there_is_space(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, room: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one").symlink_to(one / "one")
    words = COMMANDS[name]
    for _ in range(2):  # in a new folder, and over what is there
        with files_of_at_most(room):
            code, problem = call(*words)
        assert code == 2 and "cannot be written (File too large)" in problem and "\n" not in problem
        code, said = call(*words)
        assert code == 0, said
        if name == "export":  # never writes over a set
            return
        assert Path("out/index.html").read_text().rstrip().endswith("</html>")
