"""Starts servers quickly, one after another: everything is imported once, and each server is a fork that can be killed.

python forking.py ROOT PORT DATABASE     a line on standard input starts the next; its process id is the answer
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
from pathlib import Path


def main(root: str, port: str, database: str) -> None:
    """Fork a server for every line, after the one before has ended; when the input ends, so does the last."""
    from counterfoil.web import app
    from counterfoil.web.access import ServerSettings
    from counterfoil.web.app import create_app

    with tempfile.TemporaryDirectory() as folder:  # everything that is loaded on first use is loaded once
        create_app(ServerSettings(Path(folder))).state.database.close()
        if database.startswith("postgresql:"):
            importlib.import_module("psycopg")
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            os.close(0)
            app.serve(ServerSettings(Path(root), database=database, port=int(port)), told=lambda _: None)
            os._exit(0)
        print(child, flush=True)
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
