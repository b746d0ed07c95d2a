"""Workers as processes of Ray: the same bytes as in one process, whichever worker is killed."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import BadPart, RunFailed, UsageError
from counterfoil.protocols.base import Execution, Progress
from counterfoil.protocols.ray.cluster import Cluster, knock
from counterfoil.protocols.ray.dispatch import Answer, Dispatch, Lost
from counterfoil.protocols.ray.workers import Described
from counterfoil.report.export import export
from counterfoil_lab.demo import LANCE
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets
from tests.worlds import FAKES, arrays

from .compared import content, tables

ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One cluster for all tests of this file: starting one takes seconds. Its GPUs are but names."""
    options = {"include_dashboard": False, "object_store_memory": 100 * 2**20, "log_to_driver": False}
    ray.init(address="local", num_cpus=max(2, os.cpu_count() or 1), num_gpus=2, logging_level="ERROR", **options)
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, no worker is reported for waiting."""
    monkeypatch.setattr("counterfoil.protocols.ray.cluster.PLACING", math.inf)


class Echo:
    """Answers with what it is sent; dies, raises or hangs when it is told so."""

    def __init__(self, *, threads: int) -> None:
        self.still = False

    def build(self, check: bool, given: Any) -> Described:
        return Described({"code": "a"}, node=f"pid {os.getpid()}", slots=2)

    def process(self, items: Mapping[str, str], at_least: int) -> Answer:
        if "die" in items:
            os.kill(os.getpid(), signal.SIGKILL)
        if "raise" in items:
            raise BadPart("a part that cannot be used")
        if "hang" in items:
            self.still = True
            time.sleep(3600)
        return Answer(dict.fromkeys(items, os.getpid()))

    def sign_of_life(self) -> int:
        return 0 if self.still else time.monotonic_ns()

    def hand_in(self) -> None:
        pass


def answers(cluster: Cluster, calls: int = 1) -> list[Answer | Lost]:
    """The outcomes of some calls, however long the machine takes."""
    found: list[Answer | Lost] = []
    while len(found) < calls:
        found += [ended[1]] if (ended := cluster.wait()) else []
    return found


def test_answers_errors_and_lost_workers_are_told_apart() -> None:
    told: list[str] = []
    with Cluster(Execution("ray", workers=1), device="cpu", tell=told.append) as cluster:
        assert cluster.start(Echo).slots == 2
        assert cluster.workers() == {"worker 0": 2}
        cluster.send("worker 0", dict.fromkeys(["a", "b"]), 2)
        (answer,) = answers(cluster)
        assert isinstance(answer, Answer) and set(answer.done) == {"a", "b"}
        cluster.send("worker 0", dict.fromkeys(["raise"]), 1)
        with pytest.raises(BadPart, match=r"^a part that cannot be used$"):
            answers(cluster)
        cluster.send("worker 0", dict.fromkeys(["die"]), 1)
        (lost,) = answers(cluster)
        assert isinstance(lost, Lost) and lost.cause and "\n" not in lost.cause
        while not cluster.workers():  # Ray starts another one
            cluster.wait()
        cluster.send("worker 0", dict.fromkeys(["c"]), 1)
        (again,) = answers(cluster)
        assert isinstance(again, Answer) and again.done["c"] != answer.done["a"]
    assert len(told) == 1 and told[0].startswith("worker lost, restarting")


def test_what_a_killed_worker_had_is_done_again_and_a_deadly_item_found() -> None:
    told: list[str] = []
    with Cluster(Execution("ray", workers=2), device="cpu", tell=told.append) as cluster:
        cluster.start(Echo)
        names = [f"item {number}" for number in range(12)] + ["die"] + [f"item {number}" for number in range(12, 20)]
        kept, lost = [], []
        for done, answer in Dispatch(cluster, names, str, 2):
            (lost if answer is None else kept).extend(done)
    assert sorted(kept) == sorted(set(names) - {"die"}) and lost == ["die"]
    assert told and all("worker lost" in line for line in told)


def test_a_worker_that_hangs_is_ended_and_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("counterfoil.protocols.ray.cluster.BEAT", 0.1)
    with Cluster(Execution("ray", workers=1), device="cpu", tell=told.append) as cluster:
        cluster.start(Echo)
        cluster.send("worker 0", dict.fromkeys(["hang"]), 1)
        for _ in range(3):
            assert cluster.wait() is None  # it takes as long as it takes
        monkeypatch.setattr("counterfoil.protocols.ray.cluster.HUNG_AFTER", 1.0)
        (lost,) = answers(cluster)
        assert isinstance(lost, Lost)
        monkeypatch.setattr("counterfoil.protocols.ray.cluster.HUNG_AFTER", math.inf)
        while not cluster.workers():
            cluster.wait()
        cluster.send("worker 0", dict.fromkeys(["a"]), 1)
        assert isinstance(answers(cluster)[0], Answer)
    assert told[0] == "worker hangs, restarting: no sign of life for 1 seconds"


class Unfit(Echo):
    """Ends its process while it builds."""

    def build(self, check: bool, given: Any) -> Described:
        os._exit(1)


def test_workers_that_are_lost_while_they_build_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterfoil.protocols.ray.cluster.UNREADY", 1)
    with (
        Cluster(Execution("ray", workers=1), device="cpu") as cluster,
        pytest.raises(RunFailed, match="while they built their parts"),
    ):
        cluster.start(Unfit)


class Placed(Echo):
    """Says which GPU it sees."""

    def build(self, check: bool, given: Any) -> Described:
        return Described({}, node=os.environ["CUDA_VISIBLE_DEVICES"])


def test_every_worker_sees_one_gpu_and_those_without_one_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("counterfoil.protocols.ray.cluster.BEAT", 0.0)
    with Cluster(Execution("ray", workers=3, address="auto"), device="cuda", tell=told.append) as cluster:
        cluster.start(Placed)
        while len(cluster.workers()) < 2 or sum(each.life is not None for each in cluster._workers.values()) < 2:
            cluster.wait()
        assert sorted(each.about.node for each in cluster._workers.values() if each.about) == [
            "0",
            "1",
        ]  # cuda:0 for each of them
        assert told == []
        monkeypatch.setattr("counterfoil.protocols.ray.cluster.PLACING", 0.0)
        cluster.wait()
    assert told == ["1 of 3 workers wait for a node with a GPU; the others work without them"]


def test_workers_that_would_wait_for_a_gpu_for_ever_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--workers 3: .* there are 2"), Cluster(Execution("ray", workers=3), device="cuda"):
        pass
    with Cluster(Execution("ray"), device="cuda") as cluster:
        assert cluster.size == 2


def test_errors_name_their_node_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with Cluster(Execution("ray", workers=1), device="cpu", tell=told.append) as cluster:
        cluster.start(Echo)
        monkeypatch.setattr(cluster, "_several", True)
        cluster.send("worker 0", dict.fromkeys(["raise"]), 1)
        with pytest.raises(BadPart, match=r"^a part that cannot be used \(on node pid \d+\)$"):
            answers(cluster)


def test_the_lab_is_the_same_bit_by_bit_though_a_worker_is_killed(tmp_path: Path) -> None:
    values = {"model": "lab:narrow", "generator": "lab:vqgan", "oracle": "lab:clip", "data": "lab:wardrobe", "limit": 16}
    spec = protocols.parse({**values, "search": {"budget": 1}, "engine": {"chunk_images": 4}})
    told, killed = [], []

    def watch(progress: Progress) -> None:
        if progress.done >= 3 and not killed:
            killed.extend(_workers("ImageWorker")[:1])
            os.kill(killed[0], signal.SIGKILL)

    two = Execution("ray", workers=2, threads=1)
    spread = protocols.run(spec, tmp_path / "spread", execution=two, watch=watch, tell=told.append)
    whole = protocols.run(spec, tmp_path / "whole", execution=Execution(threads=1))
    assert len([line for line in told if "worker lost" in line]) == len(killed) == 1
    assert content(spread) == content(whole)
    assert (spread.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    assert len(content(whole)[3]) > 16 and spread.counts["images"] == 16


def test_the_labs_edits_are_the_same_bit_by_bit_though_workers_are_killed(tmp_path: Path) -> None:
    editor = {"name": "lab:diffusion", "inversion": "edit-friendly", "steps": 3, "self_replace": 0.4}
    values = {**LANCE, "editor": editor, "limit": 4, "others": [], "quality": {"directional": -1}, "realism": {}}
    spec = protocols.parse({**values, "edit": {"factors": ["background", "adjective"]}, "engine": {"batch": 2}})
    killed: dict[str, int] = {}

    def watch(progress: Progress) -> None:
        if progress.stage in ("inversions", "pictures") and progress.done and progress.stage not in killed:
            killed[progress.stage] = _workers("StageWorker")[0]
            os.kill(killed[progress.stage], signal.SIGKILL)

    two = Execution("ray", workers=2, threads=1)
    spread = protocols.run(spec, tmp_path / "spread", execution=two, watch=watch)
    whole = protocols.run(spec, tmp_path / "whole", execution=Execution(threads=1))
    assert set(killed) == {"inversions", "pictures"}
    assert tables(spread.path) == tables(whole.path) and content(spread) == content(whole)
    assert (spread.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    assert whole.results["counts"]["edits"] >= 4 and any(trial.image for trial in whole.trials)


def _workers(kind: str) -> list[int]:
    """The processes of workers of a kind."""
    found = []
    for each in psutil.Process().children(recursive=True):
        try:
            found += [each.pid] if kind in " ".join(each.cmdline()) else []
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("world", [pets, squares])
def test_a_staged_protocol_leaves_the_same_tables_and_records_though_a_worker_is_killed(tmp_path: Path, world) -> None:
    whole = protocols.run(world.spec(), tmp_path / "whole", given=world.make_parts())
    two = Execution("ray", workers=2, threads=1)
    told: list[str] = []
    killed: list[int] = []

    def watch(progress: Progress) -> None:
        if progress.stage in ("edits", "paintings") and progress.done and not killed:
            killed.extend(_workers("StageWorker")[:1])
            os.kill(killed[0], signal.SIGKILL)

    given = world.make_parts()  # parts that are objects travel
    spread = protocols.run(world.spec(), tmp_path / "spread", given=given, execution=two, watch=watch, tell=told.append)
    assert len(killed) == 1
    assert tables(spread.path) == tables(whole.path) != {}
    assert content(spread) == content(whole) and spread.trials
    assert (spread.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()


@pytest.mark.parametrize("name", ["static", "noise"])
def test_protocols_that_only_predict_or_come_from_a_plug_in_spread_too(tmp_path: Path, name: str) -> None:
    values = {"protocol": name, "model": f"python:{FAKES}:TinyModel", "data": f"tensors:{arrays(tmp_path / 'data.npz', 40)}"}
    spec = protocols.parse({**values, "size": 16, "engine": {"chunk_images": 4, "batch_size": 4}})
    killed: list[int] = []

    def watch(progress: Progress) -> None:
        if progress.done >= 4 and not killed:
            killed.extend(_workers("ImageWorker")[:1])
            os.kill(killed[0], signal.SIGKILL)

    spread = protocols.run(spec, tmp_path / "spread", execution=Execution("ray", workers=2, threads=1), watch=watch)
    whole = protocols.run(spec, tmp_path / "whole")
    assert len(killed) == 1 and content(spread) == content(whole)
    assert (spread.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()


def test_a_set_without_images_of_its_first_class_has_the_same_labels_over_workers(tmp_path: Path) -> None:
    made = protocols.run(squares.spec(), tmp_path / "made", given=squares.make_parts())
    export(made, tmp_path / "set", licence="MIT")
    data = {"name": f"subset:{tmp_path / 'set'}", "count": 3}  # of four classes: the first gets none
    spec = protocols.parse({"protocol": "static", "model": "fake:unseen", "data": data, "size": 16})
    whole = protocols.run(spec, tmp_path / "whole", given=squares.make_parts())
    spread = protocols.run(
        spec, tmp_path / "spread", given=squares.make_parts(), execution=Execution("ray", workers=2, threads=1)
    )
    assert content(spread) == content(whole) and spread.provenance["data"] == whole.provenance["data"]
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
        Cluster(Execution("ray"), device="cuda:1")
    with pytest.raises(UsageError, match="workers run on cpu or cuda"):
        Cluster(Execution("ray"), device="mps")
    with pytest.raises(OSError, match="refused"):  # becomes a usage error where a cluster is joined
        knock("127.0.0.1:1")
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
