"""Real workers under a crew: the same records, pictures and tables as in one process, deaths included."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from counterfoil import protocols, store
from counterfoil.core.spec import StagesSpec
from counterfoil.parts import registry
from counterfoil.parts.datasets.image_set import TRIED
from counterfoil.protocols.base import Progress
from counterfoil.protocols.fmr import fmr
from counterfoil.protocols.imagenet_d import imagenet_d
from counterfoil.protocols.lance import lance
from counterfoil.protocols.ray.climbing import ClimbWorker
from counterfoil.protocols.ray.crew import Crew
from counterfoil.protocols.ray.fmr import make
from counterfoil.protocols.ray.stages import CrewSpread, StageWorker
from counterfoil.protocols.running import finish
from counterfoil.protocols.stages import Tables, run_stages
from counterfoil.protocols.workspace import Given, open_data, with_data
from tests.parts.datasets.made import shard
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets
from tests.worlds import arrays, folder, spec

from .threads import ThreadPool


def content(run: store.Run) -> tuple[list, ...]:
    """Everything a run holds that may be compared, in an order that does not depend on its parts."""
    kinds = ("clean", "reconstruction", "made")
    named = [(trial, kind) for trial in run.trials for kind in kinds if (trial.image if kind == "made" else getattr(trial, kind))]
    files = sorted((trial.trial_id, kind, run.picture(trial, kind).read_bytes()) for trial, kind in named)
    return (*(sorted(map(repr, rows)) for rows in (run.trials, run.predictions(), run.verdicts())), files)


@pytest.mark.parametrize(("dies", "packed"), [({}, False), ({0: 2, 1: 5, 3: 3}, True)])
def test_climbs_are_those_of_one_process(tmp_path: Path, dies, packed) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}", engine={"chunk_images": 8})
    whole = protocols.run(chosen, tmp_path / "whole")
    out = tmp_path / "spread"
    pool = ThreadPool(lambda: ClimbWorker(chosen, out, chunk_images=8, packed=packed, threads=1, given=None), dies)
    crew = Crew(pool, 2)
    about = crew.start()
    dataset = open_data(chosen)
    seen: list[Progress] = []
    with store.write(out, chosen.model_dump(mode="json"), about.classes, about.account, chunk_images=8, packed=packed) as writer:
        make(crew, chosen, dataset, writer, slots=about.slots, room=about.room, watch=seen.append, tell=lambda line: None)
        finish(fmr, writer)
    pool.stop()
    spread = store.open_run(out)
    assert content(spread) == content(whole)
    assert (out / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()
    assert seen[-1].done >= 60 and pool.deaths == len([turn for number, turn in dies.items()])
    assert not list(out.rglob("*.tmp")) or dies  # what the dead had staged goes when the run is opened again


def test_an_interrupted_run_is_finished_by_another_executor(tmp_path: Path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}", engine={"chunk_images": 4})
    whole = protocols.run(chosen, tmp_path / "whole")
    out = tmp_path / "spread"
    pool = ThreadPool(lambda: ClimbWorker(chosen, out, chunk_images=4, packed=False, threads=1, given=None))
    crew = Crew(pool, 2)
    about, dataset = crew.start(), open_data(chosen)

    def watch(progress: Progress) -> None:
        if store.open_run(out).counts["images"] >= 12:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        store.write(out, chosen.model_dump(mode="json"), about.classes, with_data(about.account, dataset)) as writer,
    ):
        make(crew, chosen, dataset, writer, room=8, watch=watch, tell=lambda line: None)
    assert 12 <= store.open_run(out).counts["images"] < 60
    assert content(protocols.run(chosen, out)) == content(whole)  # the first one's workers are still about, and change nothing
    pool.stop()


def test_pictures_that_cannot_be_read_are_skipped_by_workers_too(tmp_path: Path) -> None:
    place = folder(tmp_path / "photos", 12)
    broken = sorted(place.rglob("*.png"))[3]
    broken.write_bytes(b"not a picture")
    chosen = spec(f"folder:{place}")
    whole = protocols.run(chosen, tmp_path / "whole")
    out, told = tmp_path / "spread", []
    pool = ThreadPool(lambda: ClimbWorker(chosen, out, chunk_images=64, packed=False, threads=1, given=None))
    crew = Crew(pool, 2)
    about = crew.start()
    with store.write(out, chosen.model_dump(mode="json"), about.classes, about.account) as writer:
        make(crew, chosen, open_data(chosen), writer, room=4, watch=lambda progress: None, tell=told.append)
    pool.stop()
    assert content(store.open_run(out)) == content(whole)
    assert len(told) == 1 and broken.name in told[0]


def tables(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "stages").glob("*.jsonl"))}


def test_lance_leaves_the_same_tables(tmp_path: Path) -> None:
    def parts():
        return pets.given(dataset=pets.Pets(broken=(5,)), captioner=pets.Told(mute=("pet-003",)))

    protocols.run(pets.spec(), tmp_path / "whole", given=parts())
    out = tmp_path / "spread"
    out.mkdir()
    (out / "run.json").touch()
    pool = ThreadPool(lambda: StageWorker(pets.spec(), out, threads=1, given=parts()), {0: 3, 1: 12})
    crew = Crew(pool, 2)
    crew.start()
    work, found = lance.workspace(pets.spec(), parts()), Tables(out)
    run_stages(lance.stages(work, found), found, StagesSpec(batch=5), spread=CrewSpread(crew))
    pool.stop()
    assert tables(out) == tables(tmp_path / "whole")
    assert pool.deaths == 2


def test_imagenet_d_leaves_the_same_tables(tmp_path: Path) -> None:
    protocols.run(squares.spec(), tmp_path / "whole", given=squares.given())
    out = tmp_path / "spread"
    out.mkdir()
    (out / "run.json").touch()
    pool = ThreadPool(lambda: StageWorker(squares.spec(), out, threads=1, given=squares.given()), {1: 4})
    crew = Crew(pool, 2)
    crew.start()
    work, found = imagenet_d.workspace(squares.spec(), squares.given()), Tables(out)
    run_stages(imagenet_d.stages(work, found), found, StagesSpec(), spread=CrewSpread(crew))
    pool.stop()
    assert tables(out) == tables(tmp_path / "whole")


def source(kind: str, place: Path) -> str:
    """Twelve pictures in one of the ways in which they may lie on a disk."""
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


@pytest.mark.parametrize("limit", [None, 6])
@pytest.mark.parametrize("kind", ["folder", "csv", "webdataset"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_workers_do_not_list_the_pictures_that_the_driver_has_listed(tmp_path: Path, monkeypatch, kind, wrapped, limit) -> None:
    named = source(kind, tmp_path)
    data = {"name": f"subset:{named}", "seed": 3, "per_class": 5} if wrapped else named
    chosen = spec(data, limit=limit)
    whole = protocols.run(chosen, tmp_path / "whole")
    dataset = open_data(chosen)
    told = Given(head=pickle.loads(pickle.dumps(dataset.head(TRIED))))
    create = registry.create
    monkeypatch.setattr(registry, "create", lambda role, *rest: {"dataset": pytest.fail}.get(role, create)(role, *rest))
    out = tmp_path / "spread"
    pool = ThreadPool(lambda: ClimbWorker(chosen, out, chunk_images=8, packed=False, threads=1, given=told))
    crew = Crew(pool, 2)
    about = crew.start()
    account = with_data(about.account, dataset)
    with store.write(out, chosen.model_dump(mode="json"), about.classes, account, chunk_images=8) as writer:
        make(crew, chosen, dataset, writer, room=4, watch=lambda progress: None, tell=lambda line: None)
    pool.stop()
    assert content(store.open_run(out)) == content(whole)
    assert store.open_run(out).provenance == whole.provenance  # and the run file says the same


def test_what_workers_have_finished_is_kept_when_a_run_is_interrupted(tmp_path: Path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 60)}")
    out, done = tmp_path / "run", []
    pool = ThreadPool(lambda: ClimbWorker(chosen, out, chunk_images=4096, packed=False, threads=1, given=None))
    crew = Crew(pool, 2)
    about, dataset = crew.start(), open_data(chosen)

    def watch(progress: Progress) -> None:
        done.append(progress.done)
        if progress.done >= 12:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        store.write(out, chosen.model_dump(mode="json"), about.classes, about.account, chunk_images=4096) as writer,
    ):
        make(crew, chosen, dataset, writer, room=8, watch=watch, tell=lambda line: None)
    pool.stop()
    assert store.open_run(out).counts["images"] >= done[-1] >= 12  # though no part was full
    assert not list(out.rglob("*.tmp"))
