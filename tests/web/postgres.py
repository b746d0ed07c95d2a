"""A PostgreSQL of the tests' own, on loopback, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

INSTALL = "PostgreSQL is not installed; run: apt-get install postgresql"


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return places[-1].parent if places else None


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    programs = _programs()
    if programs is None:
        pytest.skip(INSTALL)
    # It refuses to run as root; Debian's package comes with a user for it.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="counterfoil-pg-"))
    if as_user:
        shutil.chown(folder, "postgres")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = folder / "data"

    def call(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, capture_output=True, cwd=folder, timeout=60)

    try:
        call(
            str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "counterfoil", "--no-sync", "-E", "UTF8", "--locale=C"
        )
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c shared_buffers=16MB -c max_connections=60 -c fsync=off"
        call(str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql://counterfoil@127.0.0.1:{port}/postgres"
    finally:
        if (data / "postmaster.pid").exists():
            call(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
