"""Real workers in threads: the same records, images and tables as in one process, deaths included."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil import protocols, store
from counterfoil.core.errors import BadData, BadPart, BadRun, CounterfoilError, RunFailed
from counterfoil.parts import registry
from counterfoil.parts.datasets.image_set import TRIED
from counterfoil.protocols.base import Progress
from counterfoil.protocols.provenance import with_data
from counterfoil.protocols.ray import Crew, commit, process_images
from counterfoil.protocols.ray import workers as module
from counterfoil.protocols.ray.dispatch import Answer
from counterfoil.protocols.ray.workers import Described, ImageWorker, NotBuilt, StageWorker, Worker, check_alike
from counterfoil.protocols.running import finish
from counterfoil.protocols.stages import Tables, run_stages
from counterfoil.protocols.workspace import Given, open_data
from counterfoil.store.chunks import ChunkBuilder
from tests.parts.datasets.made import shard
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets
from tests.store.made import CLASSES, PROVENANCE, SPEC, expected_content, fill, image_id, records
from tests.store.made import content as content_of
from tests.worlds import arrays, folder, spec

from .compared import content, tables
from .threads import ThreadPool


def image_pool(chosen: Any, out: Path, *, given: Given | None = None, packed: bool = False, **options: Any) -> ThreadPool:
    return ThreadPool(lambda: ImageWorker(chosen, out, threads=1, packed=packed), given=given, **options)


def spread(
    pool: ThreadPool, chosen: Any, out: Path, *, watch: Any = lambda progress: None, tell: Any = print, **layout: Any
) -> store.Run:
    """A run over a pool of workers."""
    about, dataset = pool.start(), open_data(chosen)
    account = with_data(about.account, dataset)
    try:
        with store.write(out, about.spec or {}, about.classes, account, **layout) as writer:
            process_images(pool, chosen, dataset, writer, watch=watch, tell=tell)
            finish(protocols.get("fmr"), writer)
    finally:
        pool.stop()
    return store.open_run(out)


@pytest.mark.parametrize(("dies", "packed"), [({}, False), ({0: 2, 1: 5}, True)])
def test_climbs_are_those_of_one_process(tmp_path: Path, dies: dict[int, int], packed: bool) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}", engine={"chunk_images": 8})
    whole = protocols.run(chosen, tmp_path / "whole")
    seen: list[Progress] = []
    pool = image_pool(chosen, tmp_path / "spread", packed=packed, dies=dies)
    run = spread(pool, chosen, tmp_path / "spread", watch=seen.append, chunk_images=8, packed=packed)
    assert content(run) == content(whole)
    assert (run.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    assert seen[-1].done == 60 and pool.deaths == len(dies)


def test_calls_that_answer_early_lose_and_repeat_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMIT_AFTER", 0.0)
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}", engine={"chunk_images": 30})
    whole = protocols.run(chosen, tmp_path / "whole")
    run = spread(image_pool(chosen, tmp_path / "spread"), chosen, tmp_path / "spread", chunk_images=30)
    assert content(run) == content(whole)


def test_an_interrupted_run_is_finished_by_another_executor(tmp_path: Path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}", engine={"chunk_images": 4})
    whole = protocols.run(chosen, tmp_path / "whole")
    out = tmp_path / "spread"

    def watch(progress: Progress) -> None:
        if progress.done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spread(image_pool(chosen, out), chosen, out, watch=watch, chunk_images=4)
    assert 12 <= store.open_run(out).counts["images"] < 60
    assert content(protocols.run(chosen, out)) == content(whole)  # the first one's workers are still about, and change nothing


def test_what_workers_have_finished_is_kept_when_a_run_is_interrupted(tmp_path: Path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}")
    out = tmp_path / "run"
    pool = image_pool(chosen, out)

    class Interrupted(Exception):
        pass

    waits = iter(range(10**6))
    wait = pool.wait

    def interrupt() -> list[Any]:
        if next(waits) == 0:
            while sum(worker._count for worker in pool._workers.values()) < 12:
                time.sleep(0.01)
            raise Interrupted
        return wait()

    pool.wait = interrupt  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        spread(pool, chosen, out, chunk_images=4096)
    assert store.open_run(out).counts["images"] >= 12  # though no call had ended


def test_images_that_cannot_be_read_are_skipped_by_workers_too(tmp_path: Path) -> None:
    place = folder(tmp_path / "photos", 12)
    broken = sorted(place.rglob("*.png"))[3]
    broken.write_bytes(b"not an image")
    chosen = spec(f"folder:{place}")
    whole = protocols.run(chosen, tmp_path / "whole")
    told: list[str] = []
    run = spread(image_pool(chosen, tmp_path / "spread"), chosen, tmp_path / "spread", tell=told.append, chunk_images=4)
    assert content(run) == content(whole)
    assert len(told) == 1 and broken.name in told[0]
    strict = chosen.model_copy(update={"strict": True})
    with pytest.raises(BadData, match="stopping at the first"):
        spread(image_pool(strict, tmp_path / "strict"), strict, tmp_path / "strict")


def test_a_deadly_image_is_recorded_as_skipped(tmp_path: Path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 20)}")

    told: list[str] = []
    deadly = [sample.image_id for sample in open_data(chosen)][7]
    pool = image_pool(chosen, tmp_path / "run", deadly=deadly)
    run = spread(pool, chosen, tmp_path / "run", tell=told.append, chunk_images=4)
    skipped = [trial for trial in run.trials if trial.ending == "skipped"]
    assert [trial.image_id for trial in skipped] == [deadly] and "ended its worker" in skipped[0].reason
    assert run.counts == {"images": 20, "accepted": run.counts["accepted"], "skipped": 1} and len(told) == 1


def test_a_chunk_is_committed_without_the_images_that_another_answer_had(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for packed in (False, True):
        with store.write(path / str(packed), SPEC, CLASSES, PROVENANCE) as writer:
            fill(writer, range(3))
            writer.flush()
            builder = ChunkBuilder(writer.path, "worker", packed=packed)
            for number in range(1, 6):
                builder.add(*records(number))
            chunk = builder.close()
            commit(writer, [image_id(number) for number in (3, 4, 5)], Answer({}, chunk))
            other = ChunkBuilder(writer.path, "late", packed=packed)
            other.add(*records(1))
            commit(writer, [], Answer({}, other.close()))
        run = store.open_run(path / str(packed))
        found = content_of(run)
        assert {name: rows for name, rows in found.items() if name != "trials"} == expected_content(range(6))
        assert run.counts["images"] == 6 and run.counts["accepted"] == 5
        assert not list(run.path.rglob("*.tmp"))


def stage_pool(chosen: Any, out: Path, given: Given, **options: Any) -> ThreadPool:
    out.mkdir()
    (out / "run.json").touch()
    return ThreadPool(lambda: StageWorker(chosen, out, threads=1), given=given, **options)


def go_through(pool: ThreadPool, chosen: Any, out: Path, given: Given) -> None:
    """All stages over a pool of workers, a few items at a time."""
    protocol = protocols.get(chosen.protocol)
    held = Tables(out)
    stages = protocol.stages(protocol.workspace(chosen, replace(given, elsewhere=True)), held)  # this process has no part
    layout = chosen.engine.model_copy(update={"batch": 5})
    try:
        run_stages(stages, held, layout, spread=Crew(pool, pool.start()))
    finally:
        pool.stop()


@pytest.mark.parametrize(("protocol", "world"), [("lance", pets), ("imagenet-d", squares)])
def test_staged_protocols_leave_the_same_tables(tmp_path: Path, protocol: str, world: Any) -> None:
    def parts() -> Given:
        if protocol == "lance":
            return pets.make_parts(dataset=pets.Pets(broken=(5,)), captioner=pets.Told(mute=("pet-003",)))
        return squares.make_parts()

    protocols.run(world.spec(), tmp_path / "whole", given=parts())
    pool = stage_pool(world.spec(), tmp_path / "spread", parts(), dies={0: 3, 1: 12})
    go_through(pool, world.spec(), tmp_path / "spread", parts())
    assert tables(tmp_path / "spread") == tables(tmp_path / "whole")
    assert pool.deaths >= 1


def test_an_error_in_a_stage_is_raised_in_the_driver(tmp_path: Path) -> None:
    class Broken(pets.Told):
        def caption(self, images: Any, samples: Any) -> Any:
            raise BadPart("no captions today")

    given = pets.make_parts(captioner=Broken())
    with pytest.raises(CounterfoilError, match="no captions today"):
        go_through(stage_pool(pets.spec(), tmp_path / "run", given), pets.spec(), tmp_path / "run", given)


def source(kind: str, place: Path) -> str:
    """Twelve images in one of the ways in which they may lie on a disk."""
    files = sorted(folder(place / "photos", 12).rglob("*.png"))
    if kind == "csv":
        lines = [f"{file.relative_to(place)},{file.parent.name},{file.stem}" for file in files]
        (place / "photos.csv").write_text("\n".join(["path,label,id", *lines]))
        return f"csv:{place / 'photos.csv'}"
    if kind == "webdataset":
        for number, some in enumerate((files[:5], files[5:])):
            pairs = [(f"{file.stem}.png", file.read_bytes(), f"{file.stem}.cls", file.parent.name.encode()) for file in some]
            shard(place / f"photos-{number}.tar", {name: held for pair in pairs for name, held in (pair[:2], pair[2:])})
        return f"webdataset:{place}/photos-{{0..1}}.tar"
    return f"folder:{place / 'photos'}"


@pytest.mark.parametrize(
    ("kind", "wrapped", "limit"), [("folder", False, None), ("csv", True, None), ("webdataset", False, 6), ("folder", True, 6)]
)
def test_workers_do_not_list_the_images_that_the_driver_has_listed(tmp_path: Path, monkeypatch, kind, wrapped, limit) -> None:
    named = source(kind, tmp_path)
    data = {"name": f"subset:{named}", "seed": 3, "per_class": 5} if wrapped else named
    chosen = spec(data, limit=limit)
    whole = protocols.run(chosen, tmp_path / "whole")
    dataset = open_data(chosen)
    listed = Given(head=pickle.loads(pickle.dumps(dataset.head(TRIED))))
    create = registry.create
    out = tmp_path / "spread"
    pool = image_pool(chosen, out, given=listed)
    with monkeypatch.context() as patch:
        patch.setattr(registry, "create", lambda role, *rest: {"dataset": pytest.fail}.get(role, create)(role, *rest))
        pool.start()
    run = spread(pool, chosen, out)
    assert content(run) == content(whole)
    assert run.provenance == whole.provenance  # and the run file says the same


def test_a_worker_that_cannot_see_the_run_says_so(tmp_path: Path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 8)}")
    worker = ImageWorker(chosen, tmp_path / "elsewhere", threads=1, packed=False)
    with pytest.raises(NotBuilt):
        worker.process({each.image_id: each for each in open_data(chosen)}, 1)
    worker.build(False)
    with pytest.raises(BadRun, match="a disk they share"):
        worker.process({each.image_id: each for each in open_data(chosen)}, 1)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: an illegal memory access")]
)
def test_a_gpu_that_fails_ends_its_process(monkeypatch: pytest.MonkeyPatch, error: Exception, capsys) -> None:
    ended: list[int] = []
    monkeypatch.setattr(module.os, "_exit", ended.append)
    with pytest.raises(RunFailed), module._fatal_gpu():
        raise RunFailed("the model failed") from error
    assert ended == [1] and "the model failed" in capsys.readouterr().err
    with pytest.raises(RuntimeError), module._fatal_gpu():
        raise RuntimeError("shapes do not fit")
    assert ended == [1]


class Upper(Worker):
    """Answers with its items in capitals, one after the other when it may."""

    def assemble(self, check: bool, given: Any) -> Described:
        self.may = threading.Semaphore(0)
        self.took: list[str | None] = []
        return Described({})

    def work(self, items: Iterator[str | None]) -> None:
        for item in items:
            self.took.append(item)
            if item is not None:
                self.may.acquire()
                if item == "bad":
                    raise BadData("strict")
                self.finish(item, item.upper())


@pytest.fixture
def upper(tmp_path: Path) -> Upper:
    (tmp_path / "run.json").touch()
    worker = Upper(None, tmp_path, threads=1)
    worker.build(False)
    return worker


def test_a_worker_answers_when_enough_is_finished_and_keeps_the_rest(upper: Upper) -> None:
    upper.may.release(2)
    assert upper.process({each: each for each in ["a", "b", "c"]}, 2).done == {"a": "A", "b": "B"}
    upper.may.release(2)
    assert upper.process({each: each for each in ["c", "d"]}, 9).done == {"c": "C", "d": "D"}  # c is there already
    assert [item for item in upper.took if item] == ["a", "b", "c", "d"]


def test_a_worker_answers_some_time_after_the_first_is_finished_or_when_it_is_to_hand_in(upper: Upper, monkeypatch) -> None:
    upper.may.release()
    with monkeypatch.context() as patch:
        patch.setattr(module, "COMMIT_AFTER", 0.0)
        assert upper.process({each: each for each in ["a", "b"]}, 2).done == {"a": "A"}
    upper.hand_in()
    assert upper.process({}, 1).done == {}


def test_an_error_of_the_work_is_raised_by_the_call(upper: Upper) -> None:
    upper.may.release()
    with pytest.raises(BadData, match="strict"):
        upper.process({each: each for each in ["bad", "b"]}, 1)


def test_the_sign_of_life_stands_still_where_the_work_does(upper: Upper) -> None:
    upper.may.release()
    upper.process({each: each for each in ["a", "b"]}, 1)
    assert upper.took[-1] == "b" or upper.took[-1] is None
    while len(upper.took) < 2 or (still := upper.sign_of_life()) not in {upper.sign_of_life() for _ in range(1000)}:
        time.sleep(0.01)
    upper.may.release()
    upper.process({}, 1)
    assert upper.sign_of_life() != still


ACCOUNT = {
    "versions": {"torch": "2.11"},
    "code": "a",
    "functions": {"mine.py:load": "x"},
    "parts": {"model": {"weights": "w", "asked": 0}},
}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"versions": {"torch": "2.12"}}, "torch: one has 2.11, that on node gpu-7 has 2.12"),
        ({"code": "b"}, "code: one has a, that on node gpu-7 has b"),
        ({"functions": {"mine.py:load": "y"}}, "mine.py:load: one has x, that on node gpu-7 has y"),
        ({"parts": {"model": {"weights": "v"}}}, r"parts.model.weights: one has w, that on node gpu-7 has v"),
    ],
)
def test_a_node_with_other_versions_or_weights_is_refused(other: dict[str, Any], message: str) -> None:
    alike = {**ACCOUNT, "hardware": {"cores": 3}, "parts": {"model": {"weights": "w", "asked": 9}}}
    check_alike(Described(ACCOUNT, node="gpu-1"), Described(alike, node="gpu-2"))
    with pytest.raises(RunFailed, match=message):
        check_alike(Described(ACCOUNT, node="gpu-1"), Described({**ACCOUNT, **other}, node="gpu-7"))


def test_a_node_with_other_hardware_is_told_of_as_it_rounds_otherwise() -> None:
    one, two = (Described({"hardware": {"gpu": name, "batch_size": 64, "cores": 3}}, node=name) for name in ("H200", "A100"))
    assert check_alike(one, one) == ""
    assert "H200 with 64 images per call; on node A100 A100 with 64" in check_alike(one, two)
    assert "x86_64" in check_alike(one, Described({"hardware": {"machine": "x86_64"}}))
