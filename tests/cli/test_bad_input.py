"""Wrong use gives one line, exit code 2 and nothing on the disk; one bad image among many is skipped and counted."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from counterfoil import store
from counterfoil.core.errors import CounterfoilError
from tests.cli.conftest import GENERATOR, MODEL, ORACLE
from tests.cli.stored import SPEC
from tests.worlds import FAKES, arrays, folder


def errors(complaint: str) -> int:
    """Count the lines on standard error that follow what a run says of its parts first."""
    lines = complaint.splitlines()
    assert all(line.startswith("counterfoil: ") for line in lines), complaint
    return sum(
        not re.match("counterfoil: (images|model [^ ]+|oracle [^ ]+|generator [^ ]+): (size|input|rule)", line) for line in lines
    )


def assert_refused(answer: tuple[int, str, str], *words: str) -> None:
    """One line on standard error with these words, exit code 2, and no run directory."""
    code, _, complaint = answer
    assert code == 2, complaint
    assert errors(complaint) == 1, complaint
    for word in words:
        assert word in complaint.splitlines()[-1]
    assert not os.path.exists("run")


def test_a_good_run_for_comparison(run):
    code, output, _ = run()
    assert code == 0
    assert "FMR_matched" in output
    results = json.loads(Path("run/results.json").read_text())
    assert set(results["FMR"]) >= {"value", "low", "high", "n"}


def sets(*assignments: str) -> dict[str, list[str]]:
    """Assignments as they stand on the command line."""
    return {"extra": [word for each in assignments for word in ("--set", each)]}


def images_of(folder: Path, *classes: str, content: bytes = b"") -> Path:
    """A folder with an image, or a file with some content, for each class."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        if content:
            (folder / name / "a.png").write_bytes(content)
        else:
            Image.new("RGB", (16, 16)).save(folder / name / "a.png")
    return folder


WEIGHTS = sets("model.weights=model.pt", "model.classes=[ant, bee, cat, dog]")
HASHED = sets("model.weights=model.safetensors", "model.classes=[ant, bee, cat, dog]", f"model.sha256={'ab' * 32}")

REFUSED: dict[str, tuple[dict[str, object], list[str]]] = {
    "a misspelt kind of model": ({"model": "tim:resnet18"}, ["no model named 'tim'", "Did you mean 'timm'?"]),
    "a misspelt model": ({"model": "timm:resnet81"}, ["no timm model", "Did you mean 'resnet18'?"]),
    "a misspelt generator": ({"generator": "brightnes:"}, ["no generator named 'brightnes'", "Did you mean 'brightness'?"]),
    "a misspelt oracle": ({"oracle": "clipp:x"}, ["no oracle named 'clipp'", "Did you mean 'clip'?"]),
    "no data": ({"data": "nowhere"}, ["nowhere"]),
    "no such device": ({"device": "cuda:99"}, ["device 'cuda:99'", "--device cpu"]),
    "an unknown key": (sets("bugdet=3"), ["bugdet", "did you mean 'budget'?"]),
    "an unknown key of a section": (sets("search.bugdet=3"), ["search.bugdet", "did you mean 'budget'?"]),
    "an unknown option of a part": (sets("generator.speed=3"), ["speed", "its options are per_step"]),
    "a folder of classes without images": ({"data": "empty"}, ["empty"]),
    "one class": ({"data": "one"}, ["one class"]),
    "nothing but bad images": ({"data": "bad"}, ["none of 2 images tried can be read"]),
    "a class that the model lacks": ({"data": "strange"}, ["zebra", "model"]),
    "classes that the oracle lacks": ({"oracle": f"classifier:python:{FAKES}:OtherClasses"}, ["ant", "classifier"]),
    "logits that are not numbers": ({"model": f"python:{FAKES}:NotANumber"}, ["logits are not finite"]),
    "a gradient that is not there": (
        sets("model.differentiable=false", "guidance=gradient"), ["has no gradients", "guidance=search"],
    ),
    "a step by no gradient": (sets("model.differentiable=false", "norm=raw"), ["norm: raw", "norm=l2"]),
    "a search by a gradient": (sets("guidance=search", "norm=raw"), ["norm: raw", "a search takes none"]),
    "an oracle that rejects everything": (
        sets("oracle.darkest=0.99", "oracle.brightest=1.0"), ["rejects the plain reconstruction of all 12"],
    ),
    "weights that are a pickle": ({"model": "timm:resnet18", **WEIGHTS}, ["model.pt", "safetensors"]),
    "weights with another hash": ({"model": "timm:resnet18", **HASHED}, ["model.safetensors", "ab" * 32]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_refused_in_a_line(run, tmp_path, name):
    from safetensors.torch import save_file
    from torch import zeros

    (tmp_path / "empty" / "cat").mkdir(parents=True)
    images_of(tmp_path / "one", "cat")
    images_of(tmp_path / "bad", "cat", "dog", content=b"hello")
    images_of(folder(tmp_path / "strange"), "zebra")
    (tmp_path / "model.pt").write_bytes(pickle.dumps({"weight": object}))
    save_file({"weight": zeros(1)}, tmp_path / "model.safetensors")
    changes, words = REFUSED[name]
    assert_refused(run(**changes), *words)


def test_a_specification_with_an_unknown_key(counterfoil, tmp_path):
    (tmp_path / "run.yaml").write_text("modle: timm:resnet18\n")
    assert_refused(counterfoil("run", tmp_path / "run.yaml", "--out", "run"), "modle", "did you mean 'model'?")


def test_an_output_directory_that_is_a_file_or_something_else(run, tmp_path):
    (tmp_path / "taken").write_text("mine")
    code, _, complaint = run(out="taken")
    assert (code, errors(complaint)) == (2, 1)
    assert (tmp_path / "taken").read_text() == "mine"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    code, _, complaint = run(out="full")
    assert (code, errors(complaint)) == (2, 1)
    assert os.listdir(tmp_path / "full") == ["thesis.tex"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB, which is gone with the process whatever ends it."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    subprocess.run(["umount", "--lazy", place], check=True)  # it stays for as long as it is open here
    yield Path(f"/proc/self/fd/{opened}")
    os.close(opened)


def test_a_full_disk(run, small_disk, tmp_path):
    code, _, complaint = run(
        out=small_disk / "run", data=arrays(tmp_path / "data.npz", 200).as_uri().replace("file://", "tensors:")
    )
    assert code == 2
    assert errors(complaint) == 1
    assert "space" in complaint


def odd_pictures(data) -> None:
    """Images that people have and that can be used: CMYK, 16-bit, grey, palette, animated, large."""
    pixels = (np.random.default_rng(0).random((40, 60, 3)) * 255).astype(np.uint8)
    picture = Image.fromarray(pixels)
    picture.convert("CMYK").save(data / "cat" / "cmyk.jpg")
    picture.convert("L").save(data / "cat" / "grey.png")
    picture.convert("P").save(data / "cat" / "palette.png")
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(data / "cat" / "sixteen.png")
    picture.save(data / "cat" / "animated.gif", save_all=True, append_images=[picture.rotate(90)])
    Image.new("RGB", (30_000, 40), "white").save(data / "cat" / "wide.png")


def test_odd_pictures_are_converted(run, tmp_path):
    odd_pictures(folder(tmp_path / "data"))
    code, _, _ = run()
    assert code == 0
    counts = json.loads(Path("run/results.json").read_text())["counts"]
    assert (counts["images"], counts["skipped"]) == (18, 0)


def bad_pictures(data) -> None:
    whole = data / "whole.jpg"
    Image.effect_noise((200, 200), 90).convert("RGB").save(whole)
    (data / "cat" / "truncated.jpg").write_bytes(whole.read_bytes()[:900])
    (data / "dog" / "no-picture.png").write_text("hello")
    whole.unlink()


def test_bad_pictures_among_many_are_named_counted_and_skipped(run, tmp_path):
    bad_pictures(folder(tmp_path / "data"))
    code, output, complaint = run()
    assert code == 0
    assert "2 unreadable and skipped" in output
    assert "truncated.jpg" in complaint
    assert "no-picture.png" in complaint
    assert json.loads(Path("run/results.json").read_text())["counts"]["skipped"] == 2


def test_strict_stops_at_a_bad_picture(run, tmp_path):
    bad_pictures(folder(tmp_path / "data"))
    code, _, complaint = run(extra=["--strict"])
    assert code == 2
    assert errors(complaint) == 1
    assert "strict" in complaint


def test_strict_can_be_taken_back_and_taken_up(run, tmp_path):
    data = folder(tmp_path / "data")
    slow = ["--set", "engine.slots=1", "--set", "engine.chunk_images=1"]
    (data / "dog" / "no-picture.png").write_text("hello")
    code, _, complaint = run(extra=["--strict", *slow])
    assert (code, "the same command without strict resumes it" in complaint) == (2, True)
    done = len(list(Path("run/chunks").iterdir()))
    assert done > 0
    assert run(extra=slow)[0] == 0
    assert len(list(Path("run/chunks").iterdir())) > done
    code, _, complaint = run(extra=["--strict", *slow])
    assert (code, errors(complaint)) == (2, 1)
    assert "left out before (1)" in complaint
    (data / "dog" / "no-picture.png").unlink()
    assert run(out="other", extra=slow)[0] == 0
    assert run(out="other", extra=["--strict", *slow])[0] == 0


READERS = {
    "score": ["score", "RUN", "--model", MODEL],
    "judge": ["judge", "RUN", "--oracle", ORACLE],
    "report": ["report", "RUN"],
    "compare": ["compare", "RUN", "RUN"],
    "gate": ["gate", "RUN", "--min", "fmr=60"],
    "review": ["review", "RUN", "--verdicts"],
    "export": ["export", "RUN"],
    "log": ["report", "RUN", "--to", "tensorboard"],
    "board": ["export", "RUN", "--format", "result", "-o", "result.json"],
}


@pytest.mark.parametrize("command", READERS)
def test_what_is_no_run_is_refused_in_a_line(counterfoil, tmp_path, command):
    (tmp_path / "notes.txt").write_text("hello")
    folder(tmp_path / "data", count=4)
    before = sorted(tmp_path.rglob("*"))
    for path, why in (("notes.txt", "it is a file"), ("nowhere", "no such folder"), ("data", "no run.json")):
        code, _, complaint = counterfoil(*[path if word == "RUN" else word for word in READERS[command]])
        assert (code, errors(complaint)) == (2, 1)
        assert complaint.startswith(f"counterfoil: {path}: not a run directory ({why}")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", [name for name in READERS if name not in ("report", "compare")])
def test_a_run_that_has_only_begun_is_refused_in_a_line(counterfoil, tmp_path, command):
    with store.write(tmp_path / "run", SPEC, ("ant", "bee"), {}):
        pass
    code, _, complaint = counterfoil(*["run" if word == "RUN" else word for word in READERS[command]])
    assert (code, errors(complaint)) == (2, 1)
    assert complaint.startswith("counterfoil: run: ")


def test_debug_shows_the_traceback(counterfoil):
    with pytest.raises(CounterfoilError, match="no such folder"):
        counterfoil("--debug", "run", "--model", "tim:x", "--data", "d", "--generator", "a:", "--oracle", "b:")


def test_an_empty_section_is_one_without_settings(counterfoil, tmp_path):
    (tmp_path / "spec.yaml").write_text(
        f"model: {MODEL}\ndata: tensors:{arrays(tmp_path / 'a.npz', 8)}\ngenerator: '{GENERATOR}'\noracle: '{ORACLE}'\nsize: 16\n"
        "engine:\nsearch:\n"
    )
    code, printed, complaint = counterfoil(
        "run", "spec.yaml", "--precision", "bf16", "--mask", "m.safetensors", "--set", "budget=2", "--dry-run"
    )
    assert code == 0, complaint
    for line in ("precision: bf16", "mask: m.safetensors", "budget: 2"):
        assert line in printed
    (tmp_path / "spec.yaml").write_text((tmp_path / "spec.yaml").read_text().replace("engine:", "engine: 5"))
    assert_refused(counterfoil("run", "spec.yaml", "--precision", "bf16", "--dry-run"), "engine")


LONG = {
    "five thousand digits": (["--set", f"search.budget={'9' * 5000}"], "99… has more than 64 bits"),
    "slots beyond 64 bits": (["--set", f"engine.slots={10**30}"], "0… has more than 64 bits"),
    "lists in lists": (["deep.yaml"], "deep.yaml: not YAML (nested more than 100 deep)"),
    "an endless file": (["/dev/zero"], "/dev/zero: cannot be read (not a regular file)"),
    "a folder in another encoding": (["--out", "caf\udce9"], "caf\\udce9: the folder's name is not text in UTF-8"),
}


@pytest.mark.parametrize("name", LONG)
def test_values_that_no_run_can_have_are_one_line(run, tmp_path, name):
    words, said = LONG[name]
    (tmp_path / "deep.yaml").write_text("[" * 3000 + "]" * 3000)
    code, _, complaint = run(extra=words)
    assert code == 2 and said in complaint and errors(complaint) == 1
