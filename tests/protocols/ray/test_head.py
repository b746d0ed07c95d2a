"""A head that was started by hand: joined by its address with a token, else left alone; and what a killed driver leaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from counterfoil import protocols, store
from counterfoil.core.errors import UsageError
from counterfoil.protocols.base import Execution
from counterfoil.protocols.ray.cluster import Cluster
from tests.worlds import arrays, spec, values

from .compared import content

ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.xdist_group("ray")

ROOT = Path(__file__).parents[2]
JOIN = """
import sys
from counterfoil.protocols.base import Execution
from counterfoil.protocols.ray.cluster import Cluster

with Cluster(Execution("ray", workers=3, address=sys.argv[1] or None), device="cpu") as pool:
    print(pool._ray.get_runtime_context().gcs_address, int(pool._ray.cluster_resources()["CPU"]))
"""


@dataclass(frozen=True)
class Head:
    """A cluster of two cores whose head asks for a token."""

    process: subprocess.Popen[bytes]
    address: str
    environment: dict[str, str]  # for those who are to see it: the home with the token, and where the head's address is noted

    def workers(self) -> list[str]:
        """The current work of its climbing workers."""
        found = []
        for each in psutil.Process(self.process.pid).children(recursive=True):
            try:
                found += [" ".join(each.cmdline())]
            except psutil.Error:
                continue
        return [title for title in found if "ImageWorker" in title]


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """Started as people start it, but with a home and a folder of its own, so that no other cluster is touched."""
    with tempfile.TemporaryDirectory(prefix="head-", ignore_cleanup_errors=True) as folder:  # Ray wants its paths short
        home = Path(folder)
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text("c" * 64)
        bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment = {**bare, "HOME": folder, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        start = ["ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false"]
        start += ["--port=0", f"--ray-client-server-port={_free()}", "--min-worker-port=0", "--max-worker-port=0"]
        command = [sys.executable, "-m", *start, "--object-store-memory=100000000"]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
            try:
                noted = home / "ray" / "ray_current_cluster"  # written last, after the head has announced itself
                wait_for(lambda: (noted.is_file() and noted.read_text()) or process.poll() is not None)
                assert process.poll() is None, (home / "log").read_text()
                yield Head(process, noted.read_text(), environment)
            finally:
                process.terminate()
                process.wait(60)


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(what: Callable[[], Any]) -> None:
    """However long the machine takes."""
    until = time.monotonic() + 600
    while not what():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.05)


def join(address: str, environment: dict[str, str]) -> tuple[str, str]:
    """The cluster that a pool is at, and its cores."""
    command = [sys.executable, "-c", JOIN, address]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    where, cores = done.stdout.split()
    return where, cores


def test_a_head_is_joined_by_its_address_with_the_token_of_this_machine(head: Head) -> None:
    assert join(head.address, head.environment) == (head.address, "2")


def test_without_an_address_a_cluster_that_is_there_is_left_alone(head: Head) -> None:
    where, cores = join("", {**head.environment, "RAY_ADDRESS": head.address})
    assert where != head.address
    assert int(cores) == max(3, os.cpu_count() or 1)


def test_a_killed_driver_takes_its_workers_along_and_the_same_command_goes_on(head: Head, tmp_path: Path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 48)}"
    slow = {"search": {"budget": 40, "step": 0.01}, "engine": {"chunk_images": 4}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(values(data, **slow)))
    out = tmp_path / "spread"
    command = [sys.executable, "-m", "counterfoil", "run", str(tmp_path / "spec.yaml"), "--out", str(out), "--executor", "ray"]
    command += ["--workers", "1", "--threads", "1", "--ray-address", head.address]
    with subprocess.Popen(command, env=head.environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as driver:
        wait_for(lambda: driver.poll() is not None or _images(out) >= 8)
        driver.kill()
        assert driver.wait(60) < 0, driver.stderr.read() if driver.stderr else ""
    wait_for(lambda: not head.workers())
    assert 8 <= _images(out) < 48
    subprocess.run(command, env=head.environment, cwd=ROOT, capture_output=True, timeout=600, check=True)
    whole = protocols.run(spec(data, **slow), tmp_path / "whole", execution=Execution(threads=1))
    assert content(store.open_run(out)) == content(whole)
    assert (out / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    assert not list(out.rglob("*.tmp"))


def _images(out: Path) -> int:
    """Number of committed images."""
    return store.open_run(out).counts["images"] if (out / "run.json").exists() else 0


def test_a_head_that_lets_nobody_in_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # so that nothing is left behind in this process
    refusals: list[Exception] = [ConnectionError("Failed to connect"), ray.exceptions.AuthenticationError("no token was found")]

    def refuse(**options: Any) -> None:
        raise refusals.pop()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        pool = Cluster(Execution("ray", address=place), device="cpu")
        pool._ray = SimpleNamespace(init=refuse, is_initialized=lambda: False, exceptions=ray.exceptions)
        while refusals:
            with pytest.raises(UsageError, match=r"cannot be reached.*RAY_AUTH_MODE=token") as caught, pool:
                pass
            assert place in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=r"refused.*ray start --head"), pool:  # nothing listens there any longer
        pass
