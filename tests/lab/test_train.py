"""Every recipe takes two steps at a tiny size, and what it writes loads with its library's own loader."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from diffusers import AutoencoderKL, DDPMPipeline, StableDiffusionPipeline, VQModel
from lab.training import attributes, autoencoder, blip, classifiers, clip, ddpm, diffusion, loop, rewriter, vqgan
from lab.training.data import Pool, PoolSize, augment
from lab.training.loop import Run, rescheduled
from lab.training.wording import END, LENGTH, UNKNOWN, Habits, Wording, caption_tokenizer, matches, words
from safetensors import safe_open
from torch import nn
from transformers import AutoTokenizer, BlipForConditionalGeneration, BlipProcessor, CLIPModel, CLIPProcessor, LlamaForCausalLM

from counterfoil.core.errors import RunFailed
from counterfoil.parts.weights import file_sha256
from counterfoil_lab.captions import captions, rewriter_prompt, singles
from counterfoil_lab.world import FACTORS, GARMENTS, sample, shipped

TINY_POOL = PoolSize(start=16, capacity=16, chunk=8, fresh=0.25)
TINY_CONVOLUTIONAL = {"channels": [8, 8, 8, 8], "stem_width": 8, "stem_type": "deep_tiered", "avg_down": True}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    torch.manual_seed(0)
    monkeypatch.setattr(Run, "garments", lambda self: shipped("tune"))
    return Run(name="tiny", out=tmp_path / "model", weights=(tmp_path,))


def short(recipe: Any, **sizes: Any) -> Any:
    return dataclasses.replace(rescheduled(recipe, steps=2, batch=4), **sizes)


def tiny(recipe: Any, **sizes: Any) -> Any:
    return short(recipe, pool=TINY_POOL, **sizes)


def recorded(run: Run) -> dict[str, Any]:
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
    assert recorded(run)["steps"] == 2


def test_attributes_split_by_factor(run: Run) -> None:
    attributes.train(run, tiny(attributes.Attributes(), arguments=TINY_CONVOLUTIONAL))
    parts = attributes.split(timm.create_model(f"local-dir:{run.out}", pretrained=True).eval()(torch.zeros(2, 3, 64, 64)))
    assert {name: part.shape[1] for name, part in parts.items()} == {name: len(values) for name, values in FACTORS.items()}


def test_attributes_train_on_what_the_decoders_make(run: Run) -> None:
    train_painter(run)
    vqgan.train(dataclasses.replace(run, out=run.weights[0] / "vqgan"), tiny(vqgan.Vqgan(), widths=(8, 8, 8), codes=16))
    attributes.train(run, tiny(attributes.Attributes(), arguments=TINY_CONVOLUTIONAL))
    book = run.weights[0] / "vqgan" / "diffusion_pytorch_model.safetensors"
    assert recorded(run)["stages"][0]["built_on"]["vqgan/diffusion_pytorch_model.safetensors"] == file_sha256(book)


def test_a_model_to_build_on_that_is_nowhere_is_told_and_recorded(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    vqgan.train(run, tiny(vqgan.Vqgan(), widths=(8, 8, 8), codes=16))
    assert "no trained attributes to build on" in capsys.readouterr().err
    assert recorded(run)["stages"][0]["built_on"] == {"attributes": None}


def test_a_model_is_taken_from_the_first_folder_that_has_the_whole_of_it(tmp_path: Path) -> None:
    for place in ("first/diffusion/vae/config.json", "second/diffusion/vae/config.json", "second/diffusion/model_index.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    run = Run(name="clip", out=tmp_path / "out", weights=(tmp_path / "first", tmp_path / "second"))
    assert run.find("diffusion") == tmp_path / "second" / "diffusion"
    assert run.find("diffusion/vae") == tmp_path / "first" / "diffusion" / "vae"


def test_vqgan_loads_and_reconstructs(run: Run) -> None:
    vqgan.train(run, tiny(vqgan.Vqgan(), widths=(8, 8, 8), codes=16))
    model = VQModel.from_pretrained(run.out)
    assert model(torch.zeros(1, 3, 64, 64)).sample.shape == (1, 3, 64, 64)
    assert model.encode(torch.zeros(1, 3, 64, 64)).latents.shape == (1, 8, 16, 16)


def test_codebook_follows_its_latents_and_wakes_idle_codes() -> None:
    torch.manual_seed(0)
    codes = torch.tensor([[0.0], [100.0]])
    codebook = vqgan.Codebook(codes, decay=0.5, restart_every=1)
    latents = torch.randn(4, 1, 8, 8) + 5
    for _ in range(30):
        nearest_codes, nearest = codebook.quantise(latents)
        used = codebook.follow(latents, nearest, restarts=True)
    assert float(used) == 1
    assert codes.mean() == pytest.approx(5, abs=0.5)
    assert (latents - nearest_codes).square().mean() < latents.var()


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
    assert [stage["rate"] for stage in recorded(run)["stages"]] == [0.002, 0.0]
    assert len((run.out / "log.jsonl").read_text().splitlines()) == 4
    classifiers.train(run, recipe)
    assert recorded(run)["steps"] == len((run.out / "log.jsonl").read_text().splitlines()) == 2


def test_the_record_holds_all_that_made_a_stage(run: Run) -> None:
    recipe = tiny(classifiers.RECIPES["narrow"], arguments=TINY_CONVOLUTIONAL)
    classifiers.train(dataclasses.replace(run, note="first"), recipe)
    classifiers.train(dataclasses.replace(run, resumes=True, seed=1, minutes=1e-9), recipe)
    record = recorded(run)
    before, after = record["stages"]
    assert record["note"] == "first"
    assert before["recipe"] | {"schedule": before["schedule"]} == json.loads(json.dumps(dataclasses.asdict(recipe)))
    assert (before["seed"], before["rate"], "minutes" in before) == (0, 0.002, False)
    assert (after["seed"], after["rate"], after["minutes"], after["steps"]) == (1, 0.001, 1e-9, 1)
    assert before["versions"] == {"torch": torch.__version__, "timm": timm.__version__}


def test_the_record_is_written_whenever_the_weights_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SAVE_EVERY_SECONDS", -1.0)
    steps, save_timm = [], classifiers.save_timm

    def save(*model: Any, **settings: Any) -> None:
        steps.append(recorded(run)["steps"] if (run.out / "training.json").is_file() else 0)
        save_timm(*model, **settings)

    monkeypatch.setattr(classifiers, "save_timm", save)
    classifiers.train(run, tiny(classifiers.RECIPES["narrow"], arguments=TINY_CONVOLUTIONAL))
    assert steps == [0, 1]


def test_a_loss_that_is_no_number_saves_nothing(run: Run) -> None:
    recipe = rescheduled(tiny(classifiers.RECIPES["narrow"], arguments=TINY_CONVOLUTIONAL), learning_rate=float("inf"))
    with pytest.raises(RunFailed, match="the loss is nan at step 2"):
        classifiers.train(run, recipe)
    assert not (run.out / "model.safetensors").exists()


def test_a_compiled_attack_leaves_the_weights_their_gradients(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_, saved = torch.compile, []

    def network(recipe: classifiers.Classifier) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 16, stride=16), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, len(GARMENTS)))

    monkeypatch.setattr(torch, "compile", lambda work, **_: compile_(work, backend="aot_eager", fullgraph=True, dynamic=False))
    monkeypatch.setattr(classifiers, "_fresh", network)
    monkeypatch.setattr(classifiers, "save_timm", lambda model, *_, **__: saved.append(model.state_dict()))
    for compiles in (False, True):
        classifiers.train(dataclasses.replace(run, compiles=compiles), tiny(classifiers.RECIPES["adversarial"]))
    plain, compiled = saved
    assert int(plain["1.num_batches_tracked"]) == 2 * (3 + 1), "three steps of the attack and one of training, twice"
    torch.testing.assert_close(compiled, plain)


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


def test_ranked_loss_is_small_only_when_matches_stand_above_mismatches() -> None:
    true = torch.tensor([[True, False, True], [False, True, False]])
    good = torch.where(true, 10.0, -10.0)
    assert clip.ranked(good, true) < 1e-6 < clip.ranked(-good, true)


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


def test_rewriter_pairs_hide_the_prompt_and_show_the_answer() -> None:
    torch.manual_seed(0)
    tokens, wanted = rewriter.Pairs("cpu").draw(8)
    for row, answer in zip(tokens.tolist(), wanted.tolist(), strict=True):
        arrow = row.index(words().index("=>"))
        end = row.index(words().index(END))
        assert answer[: arrow + 1] == [-100] * (arrow + 1)
        assert answer[arrow + 1 : end + 1] == row[arrow + 1 : end + 1]
        assert row[3:arrow] != row[arrow + 1 : end]


def test_wording_says_what_captions_say() -> None:
    scenes = sample(200, garments=shipped("tune"), seed=1)
    factors = torch.stack([scenes.factors[name] for name in FACTORS], dim=1)
    said = caption_tokenizer()(captions(scenes), padding="max_length", return_tensors="pt").input_ids
    assert said.shape[1] == LENGTH
    torch.testing.assert_close(Wording("cpu").captions(factors), said)
    assert words().index(UNKNOWN) not in said


def test_short_captions_keep_to_what_they_state() -> None:
    torch.manual_seed(0)
    scenes = sample(64, garments=shipped("tune"), seed=2)
    factors = torch.stack([scenes.factors[name] for name in FACTORS], dim=1)
    alone = torch.zeros_like(factors, dtype=torch.bool)
    alone[:, list(FACTORS).index("colour")] = True
    texts = caption_tokenizer().batch_decode(Wording("cpu").tokens(factors, alone), skip_special_tokens=True)
    for text, colour in zip(texts, scenes.factors["colour"].tolist(), strict=True):
        assert text.split()[-2:] == [FACTORS["colour"][colour], "thing"]


def test_a_caption_matches_every_picture_it_is_true_of() -> None:
    factors = torch.tensor([[0, 1], [0, 2], [3, 1]])
    stated = torch.tensor([[True, False], [True, True], [False, True]])
    expected = torch.tensor([[True, False, True], [True, True, False], [False, False, True]])
    assert torch.equal(matches(factors, factors, stated), expected)


def test_drawn_captions_that_state_the_core_state_everything() -> None:
    torch.manual_seed(0)
    stated = Wording("cpu").draw_stated(500, Habits(full=0.2))
    core = [list(FACTORS).index(name) for name in ("garment", "colour", "material", "background", "domain")]
    assert stated[stated[:, core].all(1)].all()
    assert 0.2 < stated.all(1).float().mean() < 0.6


def test_unknown_words_become_the_unknown_token() -> None:
    tokens = caption_tokenizer()("a photo of a frobnicated boot").input_ids
    assert tokens.count(words().index(UNKNOWN)) == 1


def test_pool_replaces_its_oldest_samples() -> None:
    pool = Pool(lambda count, seed: {"seed": torch.full((count,), seed)}, size=TINY_POOL, seed=0, device="cpu")
    assert set(pool.batch(200)["seed"].tolist()) <= set(range(20))
    for _ in range(5):
        newest = pool.batch(64)["seed"]
    assert newest.min() > 1


def test_augmented_pictures_stay_in_range() -> None:
    torch.manual_seed(0)
    images = torch.rand(16, 3, 64, 64)
    changed = augment(images)
    assert changed.shape == images.shape
    assert changed.min() >= 0 and changed.max() <= 1
    assert (changed - images).abs().mean() > 0.05


def test_attack_raises_the_loss_within_its_bound() -> None:
    torch.manual_seed(0)
    weights = torch.randn(3 * 8 * 8, 4)
    images, labels = torch.rand(6, 3, 8, 8) * 0.5 + 0.25, torch.arange(6) % 4
    logits = lambda x: x.flatten(1) @ weights  # noqa: E731
    moved = classifiers.attacked(logits, images, labels, size=0.02)
    assert (moved - images).abs().max() <= 0.02 + 1e-6
    loss = torch.nn.functional.cross_entropy
    assert loss(logits(moved), labels) > loss(logits(images), labels)
