"""Workers as processes of Ray: the same bytes as in one process, whoever is killed."""

from __future__ import annotations

import math
import os
import platform
import signal
import time
from pathlib import Path

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import BadData, BadPart, UsageError
from counterfoil.protocols.base import Progress
from counterfoil.protocols.ray.crew import Death, Finished, Order, Ready, Report
from counterfoil.protocols.ray.execution import Execution
from counterfoil.protocols.ray.ray import RayPool, _knock
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets

from .test_workers import content, tables

ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One cluster for all tests of this file: starting one takes seconds. Its GPUs are but names."""
    options = {"include_dashboard": False, "object_store_memory": 100 * 2**20, "log_to_driver": False}
    ray.init(address="local", num_cpus=max(2, os.cpu_count() or 1), num_gpus=2, logging_level="ERROR", **options)
    try:
        with RayPool(Execution("ray", workers=2), device="cpu") as pool:
            yield pool
    finally:
        ray.shutdown()


class Echo:
    """Answers with what it is given; dies, or raises, when it is told so."""

    def begin(self, *, check: bool = True) -> str:
        return f"check {check}"

    def turn(self, order: Order[str]) -> Report:
        if "die" in order.give:
            os.kill(os.getpid(), signal.SIGKILL)
        if "raise" in order.give:
            raise BadPart("a part that cannot be used")
        if "hang" in order.give:
            time.sleep(3600)
        return Report([Finished(item) for item in order.give])


def next_of(pool: RayPool):
    """The next event, however long the machine takes."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if events := pool.wait():
            return events
    raise AssertionError("no worker answers")


def test_the_pool_tells_answers_errors_and_deaths_apart(cluster) -> None:
    cluster.employ(Echo)
    name = cluster.start()
    assert next_of(cluster) == [(name, Ready("check True", platform.node()))]
    cluster.turn(name, Order(give=["a", "b"]))
    assert next_of(cluster) == [(name, Report([Finished("a"), Finished("b")]))]
    cluster.turn(name, Order(give=["raise"]))
    ((_, report),) = next_of(cluster)
    assert isinstance(report.error, BadPart) and str(report.error) == "a part that cannot be used"
    cluster.turn(name, Order(give=["die"]))
    ((_, death),) = next_of(cluster)
    assert isinstance(death, Death) and death.cause and "\n" not in death.cause
    other = cluster.start(replacing=True)
    assert next_of(cluster) == [(other, Ready("check False", platform.node()))]
    cluster.stop()


def test_a_worker_that_hangs_counts_as_dead(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterfoil.protocols.ray.ray.SILENCE", 0.0)
    cluster.employ(Echo)
    name = cluster.start()
    assert next_of(cluster) == [(name, Ready("check True", platform.node()))]  # building takes as long as it takes
    cluster.turn(name, Order(give=["hang"]))
    assert next_of(cluster) == [(name, Death("it has not answered for 0 seconds"))]
    cluster.stop()


class Placed:
    """Says which GPUs it sees."""

    def begin(self, *, check: bool = True) -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    def measure(self) -> None:
        pass


def test_every_worker_sees_one_gpu_and_those_without_one_are_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("counterfoil.protocols.ray.ray.PLACING", math.inf)  # however slow this machine is
    joined = Execution("ray", workers=3, address="auto")  # a cluster that may grow
    with RayPool(joined, device="cuda", tell=told.append) as pool:
        pool.employ(Placed)
        names = [pool.start() for _ in range(3)]
        seen: dict[str, str] = {}
        while len(seen) < 2:
            seen |= {worker: event.about for worker, event in next_of(pool) if isinstance(event, Ready)}
        assert sorted(seen.values()) == ["0", "1"] and set(seen) < set(names)  # cuda:0 for each of them
        assert told == []
        monkeypatch.setattr("counterfoil.protocols.ray.ray.PLACING", 0.0)
        pool.wait()
        pool.ask("measure")  # of one that is there
    assert told == ["1 of 3 workers wait for a node with a GPU; the others work without them"]


def test_workers_that_would_wait_for_a_gpu_for_ever_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--workers 3: .* there are 2"), RayPool(Execution("ray", workers=3), device="cuda"):
        pass
    with RayPool(Execution("ray"), device="cuda") as pool:
        assert pool.workers == 2


def test_a_gpu_that_fails_ends_its_worker_and_not_the_run(cluster) -> None:
    lost = [torch.OutOfMemoryError("CUDA out of memory."), torch.AcceleratorError("CUDA error: an illegal memory access")]
    for error in lost:
        assert cluster._failed("worker 9", error) == Death(str(error))
    assert cluster._failed("worker 9", RuntimeError("shapes do not fit")).error is not None


def test_errors_and_deaths_name_their_node_where_there_are_several(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cluster._nodes, "worker 9", "gpu-7")
    assert str(cluster._failed("worker 9", BadData("photos: no such folder")).error) == "photos: no such folder"
    monkeypatch.setattr(cluster, "_several", True)
    told = cluster._failed("worker 9", BadData("photos: no such folder")).error
    assert isinstance(told, BadData) and str(told) == "photos: no such folder (on node gpu-7)"
    assert cluster._dead("worker 9", OSError("gone")) == Death("gone (on node gpu-7)")


def test_the_lab_is_the_same_bit_by_bit_though_a_worker_is_killed(tmp_path: Path) -> None:
    values = {"model": "lab:narrow", "generator": "lab:vqgan", "oracle": "lab:clip", "data": "lab:wardrobe", "limit": 16}
    spec = protocols.parse({**values, "search": {"budget": 1}, "engine": {"chunk_images": 4}})
    told, killed = [], []

    def watch(progress: Progress) -> None:
        if progress.done >= 3 and not killed:
            killed.extend(_workers()[:1])
            os.kill(killed[0], signal.SIGKILL)

    two = Execution("ray", workers=2, threads=1)
    spread = protocols.run(spec, tmp_path / "spread", execution=two, watch=watch, tell=told.append)
    whole = protocols.run(spec, tmp_path / "whole", execution=Execution(threads=1))
    assert len([line for line in told if "worker died" in line]) == len(killed) == 1
    assert content(spread) == content(whole)
    assert (spread.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    assert len(content(whole)[3]) > 16 and spread.counts["images"] == 16


def _workers() -> list[int]:
    """The processes of workers that climb."""
    found = []
    for each in psutil.Process().children(recursive=True):
        try:
            found += [each.pid] if "ClimbWorker" in " ".join(each.cmdline()) else []
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("world", [pets, squares])
def test_a_staged_protocol_over_two_workers_leaves_the_same_tables_and_records(tmp_path: Path, world) -> None:
    whole = protocols.run(world.spec(), tmp_path / "whole", given=world.given())
    two = Execution("ray", workers=2, threads=1)
    spread = protocols.run(world.spec(), tmp_path / "spread", given=world.given(), execution=two)  # parts that are objects travel
    assert tables(spread.path) == tables(whole.path) != {}
    assert content(spread) == content(whole) and spread.trials
    assert (spread.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()


def test_a_process_computes_with_the_threads_it_is_told_to() -> None:
    before = torch.get_num_threads()
    with Execution(threads=before + 1).computing():
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with Execution("ray", threads=before + 1).computing():  # the workers do, not this one
        assert torch.get_num_threads() == before


def test_what_cannot_be_is_refused_in_a_line() -> None:
    with pytest.raises(UsageError, match="a GPU of its own"):
        RayPool(Execution("ray"), device="cuda:1")
    with pytest.raises(UsageError, match="workers run on cpu or cuda"):
        RayPool(Execution("ray"), device="mps")
    with pytest.raises(OSError, match="refused"):  # becomes a usage error where a cluster is joined
        _knock("127.0.0.1:1")
    with pytest.raises(UsageError, match="no executor named 'slurm'"):
        Execution("slurm")
    with pytest.raises(UsageError, match="need --executor ray"):
        Execution(workers=2)
    with pytest.raises(UsageError, match="at least one worker, got 0"):
        Execution("ray", workers=0)
    with pytest.raises(UsageError, match="at least one thread, got 0"):
        Execution(threads=0)
    with pytest.raises(UsageError, match="keys are executor, workers, address, threads"):
        Execution.of({"nodes": 3})
    assert Execution.of({"executor": "ray", "workers": 3}, workers=2, address=None) == Execution("ray", 2)
