"""Training, measuring and describing the lab's models: tiny recipes whose results load with their library's own loader."""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from diffusers import AutoencoderKL, DDPMPipeline, StableDiffusionPipeline
from lab.training import (
    attributes,
    autoencoder,
    blip,
    classifiers,
    clip,
    ddpm,
    diffusion,
    fashion_mnist,
    rewriter,
    sheet,
    vqgan,
)
from lab.training import measure as command
from lab.training import measurements as benches
from lab.training.cards import card
from lab.training.data import Pool, PoolSize
from lab.training.fashion_mnist import DEBIAN_FOLDER, clean, fresh, from_idx, read_split, whole
from lab.training.loop import Run, reschedule
from lab.training.measure import FILES, MEASURES, SEEDS, WORDS_ALONE, Bench, Record, measure
from lab.training.measurements import withstood
from lab.training.wording import LENGTH, UNKNOWN, Wording, caption_tokenizer, words
from PIL import Image
from safetensors import safe_open
from torch import Tensor
from transformers import AutoTokenizer, BlipForConditionalGeneration, BlipProcessor, CLIPModel, CLIPProcessor, LlamaForCausalLM

from counterfoil.core.errors import BadData, CounterfoilError, RunFailed, UnknownName
from counterfoil.parts.weights import file_sha256
from counterfoil_lab.captions import captions, rewriter_prompt, singles
from counterfoil_lab.checker import Reading, points_lost
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import FACTORS, GARMENTS, Garments, load_shipped, sample

TINY_POOL = PoolSize(start=16, capacity=16, chunk=8, fresh=0.25)


TINY_CONVOLUTIONAL = {"channels": [8, 8, 8, 8], "stem_width": 8, "stem_type": "deep_tiered", "avg_down": True}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    torch.manual_seed(0)
    monkeypatch.setattr(Run, "garments", lambda self: load_shipped("tune"))
    return Run(name="tiny", out=tmp_path / "model", weights=(tmp_path,))


def short(recipe: Any, **sizes: Any) -> Any:
    return dataclasses.replace(reschedule(recipe, steps=2, batch=4), **sizes)


def tiny(recipe: Any, **sizes: Any) -> Any:
    return short(recipe, pool=TINY_POOL, **sizes)


def read_record(run: Run) -> dict[str, Any]:
    return json.loads((run.out / "training.json").read_text())


def stored_types(path: Path) -> set[str]:
    with safe_open(path, framework="pt") as file:
        return {str(file.get_tensor(key).dtype) for key in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("name", classifiers.RECIPES)
def test_classifier_becomes_a_timm_folder(run: Run, name: str) -> None:
    recipe = classifiers.RECIPES[name]
    size = {"embed_dim": 16, "depth": 1, "num_heads": 2, "img_size": 64, "patch_size": 16}
    classifiers.train(run, tiny(recipe, arguments=size if name == "vit" else TINY_CONVOLUTIONAL))
    model = timm.create_model(f"local-dir:{run.out}", pretrained=True).eval()
    assert model(torch.zeros(1, recipe.channels, 64, 64)).shape == (1, len(GARMENTS))
    assert model.pretrained_cfg["label_names"] == list(GARMENTS)
    assert model.pretrained_cfg["input_size"][0] == recipe.channels
    assert stored_types(run.out / "model.safetensors") <= {"torch.float16", "torch.int64"}
    assert read_record(run)["steps"] == 2


def test_attributes_train_on_what_the_decoders_make(run: Run) -> None:
    train_painter(run)
    vqgan.train(dataclasses.replace(run, out=run.weights[0] / "vqgan"), tiny(vqgan.Vqgan(), widths=(8, 8, 8), codes=16))
    attributes.train(run, tiny(attributes.Attributes(), arguments=TINY_CONVOLUTIONAL))
    book = run.weights[0] / "vqgan" / "diffusion_pytorch_model.safetensors"
    assert read_record(run)["stages"][0]["built_on"]["vqgan/diffusion_pytorch_model.safetensors"] == file_sha256(book)


def test_a_model_to_build_on_that_is_nowhere_is_told_and_recorded(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    vqgan.train(run, tiny(vqgan.Vqgan(), widths=(8, 8, 8), codes=16))
    assert "no trained attributes to build on" in capsys.readouterr().err
    assert read_record(run)["stages"][0]["built_on"] == {"attributes": None}


def train_painter(run: Run) -> Path:
    folder = run.weights[0] / "diffusion"
    autoencoder.train(dataclasses.replace(run, out=folder / "vae"), tiny(autoencoder.Autoencoder(), widths=(8, 8, 8)))
    recipe = tiny(diffusion.Diffusion(), widths=(16, 16), heads=(2, 2), layers=1, text_width=32, text_depth=1)
    diffusion.train(dataclasses.replace(run, out=folder), recipe)
    return folder


def test_diffusion_is_a_stable_diffusion_pipeline(run: Run) -> None:
    folder = train_painter(run)
    pipeline = StableDiffusionPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(["a photo of a red wool dress on a beach", ""], num_inference_steps=2, output_type="pt").images
    assert made.shape == (2, 3, 64, 64)
    latents = AutoencoderKL.from_pretrained(folder / "vae").encode(torch.zeros(1, 3, 64, 64)).latent_dist.mean
    assert latents.shape == (1, 4, 16, 16)
    assert stored_types(folder / "unet" / "diffusion_pytorch_model.safetensors") == {"torch.float16"}


def test_training_goes_on_from_what_is_there(run: Run) -> None:
    recipe = tiny(classifiers.RECIPES["narrow"], arguments=TINY_CONVOLUTIONAL)
    classifiers.train(run, recipe)
    before = timm.create_model(f"local-dir:{run.out}", pretrained=True).conv1[0].weight.clone()
    still = dataclasses.replace(recipe, schedule=dataclasses.replace(recipe.schedule, learning_rate=0.0))
    classifiers.train(dataclasses.replace(run, resumes=True), still)
    after = timm.create_model(f"local-dir:{run.out}", pretrained=True).conv1[0].weight
    torch.testing.assert_close(before, after)
    assert [stage["rate"] for stage in read_record(run)["stages"]] == [0.002, 0.0]
    assert len((run.out / "log.jsonl").read_text().splitlines()) == 4
    classifiers.train(run, recipe)
    assert read_record(run)["steps"] == len((run.out / "log.jsonl").read_text().splitlines()) == 2


def test_a_loss_that_is_no_number_saves_nothing(run: Run) -> None:
    recipe = reschedule(tiny(classifiers.RECIPES["narrow"], arguments=TINY_CONVOLUTIONAL), learning_rate=float("inf"))
    with pytest.raises(RunFailed, match="the loss is nan at step 2"):
        classifiers.train(run, recipe)
    assert not (run.out / "model.safetensors").exists()


def test_ddpm_is_a_pipeline(run: Run) -> None:
    ddpm.train(run, tiny(ddpm.Ddpm(), widths=(8, 8, 8), groups=4, heads_width=8))
    pipeline = DDPMPipeline.from_pretrained(run.out)
    assert pipeline.unet(torch.zeros(1, 3, 64, 64), 5).sample.shape == (1, 3, 64, 64)


def test_clip_loads_with_its_processor(run: Run) -> None:
    clip.train(run, tiny(clip.Clip(), width=32, depth=1, text_width=32, text_depth=1, projection=16, patch=16))
    model, processor = CLIPModel.from_pretrained(run.out), CLIPProcessor.from_pretrained(run.out)
    inputs = processor(
        text=singles("garment"), images=torch.rand(2, 3, 64, 64), padding=True, return_tensors="pt", do_rescale=False
    )
    assert model(**inputs).logits_per_image.shape == (2, len(GARMENTS))
    assert model.dtype == torch.float32


def test_blip_writes_captions(run: Run) -> None:
    blip.train(run, tiny(blip.Blip(), width=32, depth=1, text_width=32, text_depth=1, patch=16))
    model, processor = BlipForConditionalGeneration.from_pretrained(run.out), BlipProcessor.from_pretrained(run.out)
    tokens = model.generate(pixel_values=torch.zeros(1, 3, 64, 64), max_new_tokens=5)
    assert tokens.shape[1] <= 6
    assert set(processor.decode(tokens[0], skip_special_tokens=True).split()) <= set(words())


def test_rewriter_goes_on_with_a_prompt(run: Run) -> None:
    rewriter.train(run, short(rewriter.Rewriter(), width=32, depth=1))
    model, tokenizer = LlamaForCausalLM.from_pretrained(run.out), AutoTokenizer.from_pretrained(run.out)
    tokens = tokenizer(rewriter_prompt("colour", "a photo of a red wool dress on a beach"), return_tensors="pt")
    assert tokens.input_ids[0, -1] == words().index("=>")
    assert model.generate(**tokens, max_new_tokens=3).shape[1] <= tokens.input_ids.shape[1] + 3


def test_wording_says_what_captions_say() -> None:
    scenes = sample(200, garments=load_shipped("tune"), seed=1)
    factors = torch.stack([scenes.factors[name] for name in FACTORS], dim=1)
    said = caption_tokenizer()(captions(scenes), padding="max_length", return_tensors="pt").input_ids
    assert said.shape[1] == LENGTH
    torch.testing.assert_close(Wording("cpu").captions(factors), said)
    assert words().index(UNKNOWN) not in said


def test_pool_replaces_its_oldest_samples() -> None:
    pool = Pool(lambda count, seed: {"seed": torch.full((count,), seed)}, size=TINY_POOL, seed=0, device="cpu")
    assert set(pool.batch(200)["seed"].tolist()) <= set(range(20))
    for _ in range(5):
        newest = pool.batch(64)["seed"]
    assert newest.min() > 1


def test_attack_raises_the_loss_within_its_bound() -> None:
    torch.manual_seed(0)
    weights = torch.randn(3 * 8 * 8, 4)
    images, labels = torch.rand(6, 3, 8, 8) * 0.5 + 0.25, torch.arange(6) % 4
    logits = lambda x: x.flatten(1) @ weights  # noqa: E731
    moved = classifiers.attack(logits, images, labels, size=0.02)
    assert (moved - images).abs().max() <= 0.02 + 1e-6
    loss = torch.nn.functional.cross_entropy
    assert loss(logits(moved), labels) > loss(logits(images), labels)


HAS_DATA = (Path(DEBIAN_FOLDER) / "train-images-idx3-ubyte.gz").is_file()


def prints(garments: Garments) -> set[bytes]:
    return {bytes(pixels.flatten().tolist()) for pixels in garments.pixels}


def square(size: int, label: str) -> tuple[Tensor, Tensor]:
    """One garment: a bright square in the middle."""
    pixels = torch.zeros(1, 28, 28, dtype=torch.uint8)
    low = 14 - size // 2
    pixels[:, low : low + size, low : low + size] = 200
    return pixels, torch.tensor([GARMENTS.index(label)])


@pytest.mark.parametrize(("split", "count"), [("report", 1000), ("tune", 600)])
def test_shipped_garments_are_balanced(split: str, count: int) -> None:
    garments = load_shipped(split)
    assert garments.pixels.shape == (count, 28, 28)
    assert garments.pixels.dtype == torch.uint8
    assert garments.labels.dtype == torch.int64
    assert torch.bincount(garments.labels).tolist() == [count // len(GARMENTS)] * len(GARMENTS)
    assert ((garments.pixels > 0).sum((1, 2)) >= fashion_mnist.SURFACE).all()


def test_shipped_splits_share_no_garment() -> None:
    report, tune = prints(load_shipped("report")), prints(load_shipped("tune"))
    assert len(report) == 1000
    assert len(tune) == 600
    assert not report & tune


def test_unknown_shipped_split_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"'train'.*'report' or 'tune'"):
        load_shipped("train")


@pytest.mark.skipif(not HAS_DATA, reason="needs dataset-fashion-mnist")
def test_shipped_garments_come_from_the_test_split_alone() -> None:
    ours = prints(load_shipped("report")) | prints(load_shipped("tune"))
    train, test = from_idx(split="train"), from_idx(split="test")
    assert ours <= prints(test)
    assert not ours & prints(train)
    assert torch.bincount(train.labels, minlength=len(GARMENTS)).min() > 1500


@pytest.mark.skipif(not HAS_DATA, reason="needs dataset-fashion-mnist")
def test_fresh_garments_are_those_of_the_test_split_that_do_not_ship() -> None:
    ours, others = prints(load_shipped("report")) | prints(load_shipped("tune")), prints(fresh())
    assert others == prints(from_idx(split="test")) - ours
    assert len(fresh()) == 3678


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files in Fashion-MNIST's form: every garment of the test split is a full square, classes in turn."""
    pixels = bytearray(28 * 28)
    for row in range(4, 24):
        pixels[row * 28 + 4 : row * 28 + 24] = bytes([180]) * 20
    images = bytes((0, 0, 8, 3, 0, 0, 39, 16, 0, 0, 0, 28, 0, 0, 0, 28)) + bytes(pixels) * 10_000
    labels = bytes((0, 0, 8, 1, 0, 0, 39, 16)) + bytes(range(10)) * 1000
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, compresslevel=1))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(labels)
    return tmp_path


def test_idx_files_are_read_plain_or_gzipped(folder: Path) -> None:
    pixels, labels = read_split(folder, "test")
    assert pixels.shape == (10_000, 28, 28)
    assert pixels[0, 3, 4] == 0
    assert pixels[0, 4, 4] == 180
    assert labels[:10].tolist() == [0, 1, 2, 3, -1, 4, -1, 5, 6, 7]


def test_the_whole_split_leaves_out_two_classes_and_nothing_else(folder: Path) -> None:
    every = whole(folder)
    assert torch.bincount(every.labels).tolist() == [1000] * len(GARMENTS)
    assert every.pixels.shape == (8000, 28, 28)


def test_missing_files_name_the_package(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="dataset-fashion-mnist"):
        from_idx(tmp_path, "train")


def test_files_of_another_shape_are_refused(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 2, 1, 2)))
    with pytest.raises(BadData, match="t10k-labels-idx1-ubyte: not Fashion-MNIST"):
        from_idx(folder, "test")


def test_cleaning_removes_the_halo_and_fills_closed_holes() -> None:
    pixels, label = square(10, "dress")
    pixels[0, 12:15, 12:15] = 0
    pixels[0, 2, 2] = 9
    cleaned = clean(pixels, label)
    assert cleaned[0, 2, 2] == 0
    assert (cleaned[0, 9:19, 9:19] > 0).all()
    assert int((cleaned > 0).sum()) == 100
    assert torch.equal(clean(cleaned, label), cleaned)


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A folder of models with one in it, `diverse`, to write next to."""
    (tmp_path / "diverse").mkdir()
    for file in ("config.json", "model.safetensors"):
        (tmp_path / "diverse" / file).write_bytes((WEIGHTS / "diverse" / file).read_bytes())
    return tmp_path


def test_nothing_is_written_unless_it_is_to_be_kept(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(model_folder.rglob("*"))
    command.main(["diverse", "--weights", str(model_folder), "--count", "4"])
    assert sorted(model_folder.rglob("*")) == before
    assert "accuracy, full" in capsys.readouterr().out
    command.main(["diverse", "--weights", str(model_folder), "--count", "4", "--keep"])
    record = json.loads((model_folder / "diverse" / "measured.json").read_text(encoding="utf-8"))
    assert (record["split"], record["seed"], record["count"], record["device"]) == ("report", SEEDS["report"], 4, "cpu")
    assert record["weights"] == {"diverse/model.safetensors": file_sha256(model_folder / "diverse" / "model.safetensors")}
    assert record["machine"]
    assert torch.__version__.startswith(record["versions"]["torch"])
    assert [reading["n"] for reading in record["readings"]] == [4]


def test_a_record_names_the_model_and_its_judges() -> None:
    record = measure(Bench(count=2), "vqgan")
    assert {path.split("/")[0] for path in record.weights} == {"vqgan", "diverse", "attributes"}
    losses = {reading.name: reading.at_most for reading in record.readings if reading.unit == "points"}
    assert losses["material lost in reconstruction"] == losses["weather lost in reconstruction"] == 5
    assert len(losses) == 9


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["narow"], "did you mean 'narrow'"),
        (["narrow", "--count", "1"], "at least 2, got 1"),
        (["narrow", "--split", "tune", "--keep"], "choices are made by tune"),
        (["narrow", "--split", "whole", "--data", "nowhere"], "nowhere: no t10k-images-idx3-ubyte"),
        (["rewriter", "--split", "whole"], "sees no garment"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises(CounterfoilError, match=problem):
        command.main(arguments)


def test_no_two_splits_show_the_same_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("fresh", "whole"):
        monkeypatch.setattr(benches, split, lambda folder: load_shipped("report"))
    drawn = [Bench(split=split, count=50).scenes()[0] for split in SEEDS]
    assert len(torch.cat([scenes.seed for scenes in drawn]).unique()) == 50 * len(SEEDS)


def test_an_attack_takes_the_plain_model_and_not_the_hardened_one() -> None:
    bench = Bench(count=40)
    scenes, images = bench.scenes("narrow")
    plain, hardened = (withstood(bench, name, images, scenes.factors["garment"]).sum() for name in ("narrow", "adversarial"))
    assert plain < 10
    assert hardened > 30


def test_a_loss_is_of_the_same_rows_and_its_interval_has_a_width() -> None:
    before = torch.tensor([True] * 90 + [False] * 10)
    after = torch.tensor([True] * 84 + [False] * 6 + [True] * 2 + [False] * 8)
    reading = points_lost("material", before, after, at_most=5)
    assert reading.value == pytest.approx(4)
    # By hand: 6 fell, 2 rose; with half a row in each cell 6.5 and 2.5 of 102.
    half = 1.959964 * (9 / 102**2 - (4 / 102) ** 2 / 102) ** 0.5
    assert (reading.low, reading.high) == (pytest.approx(100 * (4 / 102 - half)), pytest.approx(100 * (4 / 102 + half)))
    same = points_lost("colour", before, before)
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)
    assert same.high > 1


def put(folder: Path, split: str, value: float, *, target: float | None = 93) -> None:
    """Write a record of one reading."""
    reading = Reading("accuracy, full", value, value - 1, value + 1, 4000, at_least=target)
    Record(split, 5, 4_000, "cuda", "NVIDIA H200", {"torch": "2.11.0"}, {}, [reading]).write(folder / FILES[split])


def test_a_card_has_every_measurement_with_its_garments_and_target(tmp_path: Path) -> None:
    put(tmp_path, "report", 95.0)
    put(tmp_path, "fresh", 92.0)
    put(tmp_path, "whole", 80.0, target=None)
    _, report, fresh, whole = card("diverse", tmp_path).split("\n## ")
    assert "`python -m lab.training.measure diverse --device cuda` on NVIDIA H200, torch 2.11.0" in report
    assert "| accuracy, full | 95.0 % | 94.0 to 96.0 | 4,000 | ≥ 93: met |" in report
    assert "3,678 usable garments" in fresh and "≥ 93: missed |" in fresh
    assert "all 8,000 test garments" in whole and "| accuracy, full | 80.0 % | 79.0 to 81.0 | 4,000 |  |" in whole


def test_a_card_needs_a_measurement(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"python -m lab\.training\.measure diverse --keep"):
        card("diverse", tmp_path)


@pytest.mark.parametrize("name", MEASURES)
def test_what_ships_was_measured_and_meets_its_targets(name: str) -> None:
    folder = WEIGHTS / name
    files = {split: folder / file for split, file in FILES.items() if (folder / file).is_file()}
    assert set(FILES) - set(files) == ({"whole"} if name in WORDS_ALONE else set())
    for split, path in files.items():
        record = Record.read(path)
        assert record.split == split
        assert [reading.name for reading in record.readings if reading.holds is False] == []
        own = {file.relative_to(WEIGHTS).as_posix() for file in folder.rglob("*.safetensors")}
        assert own <= set(record.weights)
        assert record.weights == {file: file_sha256(WEIGHTS / file) for file in record.weights}
    assert (folder / "README.md").read_text(encoding="utf-8") == card(name, folder)
    assert json.loads((folder / "training.json").read_text(encoding="utf-8"))["stages"]


def test_command_writes_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "sheet.png"
    monkeypatch.setattr(sys, "argv", ["sheet", str(out), "--count", "6", "--columns", "3", "--enlarge", "2"])
    sheet.main()
    assert Image.open(out).size == (2 * (3 * 66 + 2), 2 * (2 * 66 + 2))
