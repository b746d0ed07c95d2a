"""A real Chromium, and a server for it to look at."""

from __future__ import annotations

import functools
import inspect
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

INSTALL = "Chromium is not installed; run: apt-get install chromium"


def chromium() -> str:
    """Where Chromium is; tests that need it are skipped without."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip(INSTALL)
    return found


@dataclass(frozen=True)
class Desk:
    """Chromium without a window, in a thread of its own: the driver takes its thread's event loop for itself."""

    thread: ThreadPoolExecutor
    browser: Any


@contextmanager
def desk() -> Iterator[Desk]:
    """A desk for some tests to sit at, one after another."""
    program = chromium()
    from playwright.sync_api import sync_playwright

    with ThreadPoolExecutor(1) as thread:
        driver = thread.submit(lambda: sync_playwright().start()).result()
        try:
            how = {"executable_path": program, "args": ["--no-sandbox", "--disable-gpu"]}
            yield Desk(thread, thread.submit(lambda: driver.chromium.launch(**how)).result())
        finally:
            thread.submit(driver.stop).result()


def at_the_desk(test: Callable[..., None]) -> Callable[..., None]:
    """A test whose first argument is the browser, run in the browser's thread."""

    @functools.wraps(test)
    def sitting(desk: Desk, **given: Any) -> None:
        desk.thread.submit(test, desk.browser, **given).result()

    first, *others = inspect.signature(test).parameters.values()
    sitting.__signature__ = inspect.Signature([first.replace(name="desk"), *others])  # type: ignore[attr-defined]
    return sitting


@contextmanager
def served(root: Path, *, port: int = 0) -> Iterator[str]:
    """The address of a server over `root`, started as people start it."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    command = [sys.executable, "-m", "counterfoil.cli", "serve", str(root), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            patience = time.monotonic() + 60
            while not _listens(port):
                assert server.poll() is None and time.monotonic() < patience, "the server did not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
