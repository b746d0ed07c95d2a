"""`report` and `board` on a disk that takes no more: one line, and the same command works once there is space."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.stored import call
from tests.report.made import Plan, build

COMMANDS = {
    "report": ["report", "one", "-o", "out"],
    "board": ["board", "one", "-o", "out", "--pictures", "4"],
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
