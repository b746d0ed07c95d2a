"""Guided denoising: its arithmetic with an exact denoiser, and networks of diffusers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.contracts import State
from counterfoil.parts.generators.adm import AdmDenoiser, AdmUNet, Flags
from counterfoil.parts.generators.diffusion import (
    Denoising,
    DiffusionGenerator,
    NoiseLevels,
    Prediction,
    Process,
    add_noise,
    class_names,
    diffusion,
)
from counterfoil.testing import check_generator
from tests.generators.diffusion.conftest import MEAN, SPREAD, GaussianDenoiser, linear_process, save_pipeline
from tests.generators.named_weights import named_pictures


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_right_guess_gives_picture_and_noise_back(prediction: Prediction) -> None:
    clean, noise = named_pictures(3, 8) * 2 - 1, named_pictures(3, 8, name="noise") * 4 - 2
    kept = torch.tensor([0.95, 0.5, 0.1]).reshape(3, 1, 1, 1)
    guess = {"epsilon": noise, "sample": clean, "v_prediction": kept.sqrt() * noise - (1 - kept).sqrt() * clean}
    found = linear_process(prediction).split(guess[prediction], add_noise(clean, noise, kept), kept)
    assert torch.allclose(found[0], clean, atol=1e-5)
    assert torch.allclose(found[1], noise, atol=1e-5)


def test_a_guess_out_of_range_is_cut_and_keeps_its_gradient() -> None:
    process, kept = linear_process("sample", limit=1.0), torch.full((1, 1, 1, 1), 0.5)
    guess = torch.tensor([-3.0, 0.5, 2.0]).reshape(1, 3, 1, 1).requires_grad_()
    noisy = torch.tensor([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)
    clean, noise = process.split(guess, noisy, kept)
    assert clean.flatten().tolist() == [-1.0, 0.5, 1.0]
    assert torch.allclose(add_noise(clean, noise, kept), noisy)  # both still add up to what was seen
    assert torch.autograd.grad(clean.sum(), guess)[0].flatten().tolist() == [1.0, 1.0, 1.0]


def test_the_ladder_starts_at_the_strength_and_is_even_in_time() -> None:
    process = linear_process()
    strength = float((1 - process.alphas_cumprod[399]).sqrt())
    ladder = NoiseLevels.down_from(strength, 10, process)
    assert ladder.times.tolist() == list(range(399, 0, -40))
    assert torch.equal(ladder.kept, process.alphas_cumprod[ladder.times])
    assert ladder.last == 9
    assert NoiseLevels.down_from(strength, 1, process).times.tolist() == [399]
    assert NoiseLevels.down_from(strength, 400, process).times.tolist() == list(range(399, -1, -1))


@pytest.mark.parametrize(
    ("strength", "steps", "complaint"),
    [(0.0, 10, "between 0 and 1"), (1.0, 10, "between 0 and 1"), (0.4, 0, "at least one"), (0.05, 40, "take fewer")],
)
def test_an_impossible_ladder_is_refused(strength: float, steps: int, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        NoiseLevels.down_from(strength, steps, linear_process())


def test_an_unknown_prediction_is_refused() -> None:
    with pytest.raises(BadPart, match="predicts 'flow'"):
        Process(torch.ones(3), "flow")  # type: ignore[arg-type]


def start(generator: DiffusionGenerator, images: Tensor, seeds: Tensor | None = None, *, label: int = 0) -> State:
    seeds = torch.arange(len(images)) if seeds is None else seeds
    return generator.start(images, torch.full((len(images),), label), seeds)


def gradient_of(generator: DiffusionGenerator, state: State, weighting: Tensor) -> Tensor:
    leaf = state["noisy"].clone().requires_grad_()
    return torch.autograd.grad((generator.render({**state, "noisy": leaf}) * weighting).sum(), leaf)[0]


def exact(**options: Any) -> DiffusionGenerator:
    return DiffusionGenerator(GaussianDenoiser(), Denoising(**options))


def advance(generator: DiffusionGenerator, state: State, steps: int) -> State:
    for _ in range(steps):
        state = generator.step(state, torch.zeros_like(state["noisy"]))
    return state


@pytest.mark.parametrize("gradient", ["one-step", "full"])
@pytest.mark.parametrize("noising", ["random", "inversion"])
def test_contract(gradient: str, noising: str) -> None:
    check_generator(exact(gradient=gradient, noising=noising), exact=True)


def test_pictures_start_with_as_much_noise_as_asked_for() -> None:
    generator, images = exact(strength=0.5), torch.full((4, 3, 64, 64), 0.5)  # mid-grey is 0 in [-1, 1]
    noisy = start(generator, images)["noisy"]
    assert noisy.std().item() == pytest.approx(0.5, abs=0.01)
    assert noisy.mean().item() == pytest.approx(0.0, abs=0.01)
    kept = generator.levels.kept[0]
    assert (1 - kept).sqrt().item() == pytest.approx(0.5, abs=0.01)


def test_noise_comes_from_the_seed_alone() -> None:
    generator, images = exact(), named_pictures(2, 16)
    one, two = start(generator, images, torch.tensor([5, 5])), start(generator, images.flip(0), torch.tensor([5, 6]))
    kept = generator.levels.kept[0]
    noise = [(state["noisy"] - kept.sqrt() * (pictures * 2 - 1)) for state, pictures in ((one, images), (two, images.flip(0)))]
    assert torch.allclose(noise[0][0], noise[0][1], atol=1e-5)
    assert torch.allclose(noise[0][0], noise[1][0], atol=1e-5)
    assert (noise[0][0] - noise[1][1]).abs().max() > 0.5


def test_with_many_steps_an_exact_denoiser_maps_noise_to_pictures_as_it_should() -> None:
    generator, images = exact(steps=128), named_pictures(4, 16)
    state, kept = start(generator, images), generator.levels.kept[0]
    # For normal pixels the deterministic path keeps a pixel's place in the distribution: how many deviations from the mean.
    place = (state["noisy"] - kept.sqrt() * MEAN) / (kept * SPREAD**2 + 1 - kept).sqrt()
    expected = ((MEAN + SPREAD * place + 1) / 2).clamp(0, 1)
    assert (generator.render(state) - expected).abs().max() < 0.01


def test_an_inverted_picture_denoises_back_to_itself() -> None:
    images = named_pictures(4, 16)
    errors = {}
    for noising in ("random", "inversion"):
        generator = exact(noising=noising, steps=50)
        errors[noising] = (generator.render(start(generator, images)) - images).abs().mean().item()
    assert errors["inversion"] < 0.01
    assert errors["random"] > 0.05


@pytest.mark.parametrize("gradient", ["one-step", "full"])
def test_a_step_along_nothing_changes_nothing(gradient: str) -> None:
    generator, images = exact(gradient=gradient), named_pictures(4, 16)
    state = start(generator, images)
    plain = generator.render(state)
    for _ in range(12):
        state = advance(generator, state, 1)
        assert torch.equal(generator.render(state), plain)
    assert state["level"].tolist() == [9] * 4


def test_steps_go_down_the_ladder_and_stay_at_its_foot() -> None:
    generator = exact(steps=3, steps_per_level=2)
    state = start(generator, named_pictures(1, 16))
    levels, scales = [], []
    for _ in range(8):
        levels.append(int(state["level"]))
        scales.append(float(state["scale"]))
        state = advance(generator, state, 1)
    assert levels == [0, 0, 1, 1, 2, 2, 2, 2]
    assert scales == pytest.approx([float((1 - generator.levels.kept[level]).sqrt()) for level in levels])


def test_a_signal_moves_the_noisy_picture_before_it_is_denoised() -> None:
    generator = exact(steps_per_level=2)
    state = start(generator, named_pictures(2, 16))
    signal = named_pictures(2, 16, name="signal")
    assert torch.equal(generator.step(state, signal)["noisy"], state["noisy"] + signal)
    moved = {**state, "noisy": state["noisy"] + signal}
    assert torch.equal(generator.render(generator.step(generator.step(state, signal), 0 * signal)), generator.render(moved))


def slope(generator: DiffusionGenerator, levels: list[int]) -> float:
    """Derivative of a linear denoiser's clean image by the noisy one at the first of the levels, through all of them."""
    total, ladder = 1.0, generator.levels
    for number, level in enumerate(levels):
        kept = float(ladder.kept[level])
        to_clean = kept**0.5 * SPREAD**2 / (kept * SPREAD**2 + 1 - kept)
        if number == len(levels) - 1:
            return total * to_clean
        below = float(ladder.kept[level + 1])
        total *= below**0.5 * to_clean + (1 - below) ** 0.5 * (1 - kept**0.5 * to_clean) / (1 - kept) ** 0.5
    return total


@pytest.mark.parametrize("level", [0, 4, 9])
def test_gradients_are_those_of_the_guess_or_of_the_whole_chain(level: int) -> None:
    weighting = named_pictures(2, 16, name="weighting")
    for gradient, levels in (("one-step", [level]), ("full", list(range(level, 10)))):
        generator = exact(gradient=gradient)
        state = advance(generator, start(generator, named_pictures(2, 16)), level)
        expected = weighting / 2 * slope(generator, levels)  # half: from [-1, 1] to [0, 1]
        assert torch.allclose(gradient_of(generator, state, weighting), expected, atol=1e-5)


@pytest.mark.parametrize("gradient", ["one-step", "full"])
def test_rows_at_different_levels_do_not_touch_each_other(gradient: str) -> None:
    generator, weighting = exact(gradient=gradient), named_pictures(1, 16, name="weighting")
    state = start(generator, named_pictures(8, 16))
    alone = [advance(generator, state, 2 * row) for row in range(5)]
    mixed = {name: torch.cat([*(alone[row][name][row : row + 1] for row in range(5)), rows[5:]]) for name, rows in state.items()}
    assert mixed["level"].tolist() == [0, 2, 4, 6, 8, 0, 0, 0]
    rendered, gradients = generator.render(mixed), gradient_of(generator, mixed, weighting)
    onward = generator.step(mixed, mixed["noisy"] * 0.01)
    for row in range(5):
        assert torch.equal(rendered[row], generator.render(alone[row])[row])
        assert torch.equal(gradients[row], gradient_of(generator, alone[row], weighting)[row])
        expected = generator.step(alone[row], alone[row]["noisy"] * 0.01)
        for name in expected:
            assert torch.equal(onward[name][row], expected[name][row])


def test_labels_are_the_networks_own_numbers() -> None:
    labels = torch.tensor([2, 0, 1])
    for count, told in ((9, (2, 0, 1)), (None, (0, 0, 0))):
        denoiser = GaussianDenoiser(classes=count)
        generator = DiffusionGenerator(denoiser)
        generator.render(generator.start(named_pictures(3, 16), labels, torch.arange(3)))
        assert {tuple(classes.tolist()) for classes in denoiser.seen} == {told}


@pytest.mark.parametrize(
    ("given", "count", "complaint"),
    [
        (None, 5, "their names are not known; give them"),
        (["a", "b"], 5, "2 different class names given for 5"),
        (["a", "a"], 2, "1 different class names"),
        (["a"], None, "the network knows of none"),
        ("cat", 5, "their names are not known"),
    ],
)
def test_a_network_whose_classes_have_no_names_is_refused(given: Any, count: int | None, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        class_names(given, count, what="diffusion:x")


def test_a_network_of_imagenet_knows_its_names() -> None:
    names = class_names("imagenet", 1000, what="adm:x")
    assert names is not None and names[0] == "tench" and class_names(None, None, what="adm:x") is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps_per_level": 0}, "at least one step"),
        ({"noising": "none"}, "no noising named 'none'"),
        ({"gradient": "x"}, "no gradient named"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        Denoising(**options)


def test_provenance_says_how_pictures_are_denoised() -> None:
    account = exact(steps=5).provenance()
    assert account["network"] == "exact"
    assert account["denoising"] == repr(Denoising(steps=5))


def test_cut_guesses_keep_pictures_in_range_all_the_way() -> None:
    generator = DiffusionGenerator(GaussianDenoiser(linear_process(limit=0.5)))
    rendered = generator.render(start(generator, named_pictures(4, 16)))
    assert rendered.min() >= 0.25
    assert rendered.max() <= 0.75


HALF = torch.bfloat16


@pytest.fixture
def generator(pipelines: dict[str, Path]) -> DiffusionGenerator:
    return diffusion(str(pipelines["plain"]), steps=4)


def adm_denoiser() -> AdmDenoiser:
    torch.manual_seed(0)
    flags = Flags(image_size=16, num_channels=32, num_res_blocks=1, channel_mult="1,2", attention_resolutions="8")
    return AdmDenoiser(AdmUNet(flags, classes=None), flags)


@pytest.mark.parametrize("make", [lambda pipelines: diffusion(str(pipelines["plain"])).denoiser, lambda _: adm_denoiser()])
def test_an_accelerated_network_computes_in_its_dtype(pipelines: dict[str, Path], make: Callable[..., Any]) -> None:
    denoiser = make(pipelines)
    noisy, times, classes = named_pictures(2, 16) * 2 - 1, torch.tensor([3, 700]), torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        exact = denoiser.predict(noisy, times, classes)
        rounded = denoiser.accelerate(HALF).predict(noisy, times, classes)
        assert rounded.dtype == HALF and 0 < (rounded.float() - exact).norm() < 0.03 * exact.norm()
        assert torch.equal(denoiser.predict(noisy, times, classes), exact)  # the network itself is as it was


def test_an_accelerated_generator_starts_in_float32(pipelines: dict[str, Path]) -> None:
    generator = diffusion(str(pipelines["plain"]), steps=3, noising="inversion")
    fast = generator.accelerate(HALF)
    assert fast is not None
    images, labels, seeds = named_pictures(2, 16), torch.zeros(2, dtype=torch.long), torch.arange(2)
    state = generator.start(images, labels, seeds)
    assert torch.equal(fast.start(images, labels, seeds)["noisy"], state["noisy"])
    assert 0 < (fast.render(state) - generator.render(state)).abs().max() < 0.1


def climb(generator: DiffusionGenerator, render: Callable[[State], Tensor]) -> Tensor:
    """The images rendered on the way down, each with a gradient."""
    images = named_pictures(2, 16)
    state = generator.start(images, torch.zeros(2, dtype=torch.long), torch.arange(2))
    seen = []
    for _ in range(generator.denoising.steps + 1):
        leaf = state["noisy"].detach().requires_grad_()
        pictures = render({**state, "noisy": leaf})
        (slope,) = torch.autograd.grad((pictures * torch.linspace(-1, 1, 16)).sum(), leaf)
        seen.append(pictures.detach())
        state = generator.step(state, 0.01 * slope.sign())
    return torch.stack(seen)


def test_a_compiler_gets_the_network_twice_whatever_the_level(generator: DiffusionGenerator) -> None:
    graphs: list[int] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(generator.render, dynamic=False, backend=counting)
    assert torch.equal(climb(generator, compiled), climb(generator, generator.render))
    assert sum(nodes > 100 for nodes in graphs) == 2  # with a gradient and without; four levels inside one graph would be more
    torch._dynamo.reset()


WEIGHTS = "diffusion_pytorch_model.safetensors"

AT_399 = float((1 - linear_process().alphas_cumprod[399]).sqrt())  # the strength at which ten steps are forty of training apart


@pytest.mark.parametrize("options", [{}, {"noising": "inversion", "steps_per_level": 2}, {"gradient": "full"}])
@pytest.mark.parametrize("name", ["plain", "classes"])
def test_networks_of_diffusers_keep_the_contract(pipelines: dict[str, Path], name: str, options: dict[str, Any]) -> None:
    named = {"classes": list("abcde")} if name == "classes" else {}
    check_generator(diffusion(str(pipelines[name]), steps=3, **named, **options), exact=True)


@pytest.mark.parametrize(
    ("scheduler", "config"),
    [
        ({}, {}),
        ({"prediction_type": "sample"}, {}),
        ({"prediction_type": "v_prediction", "clip_sample": False}, {"num_class_embeds": 5}),
    ],
)
def test_denoising_is_that_of_the_library(tmp_path: Path, scheduler: dict[str, Any], config: dict[str, Any]) -> None:
    from diffusers import DDIMScheduler, UNet2DModel

    folder = save_pipeline(tmp_path, scheduler=scheduler, **config)
    named = {"classes": list("abcde")} if config else {}
    generator, images = diffusion(str(folder), strength=AT_399, **named), named_pictures(4, 16)
    state = start(generator, images, label=3)
    network = UNet2DModel.from_pretrained(folder / "unet").eval()
    library = DDIMScheduler.from_pretrained(folder / "scheduler")
    library.set_timesteps(25)  # forty of the thousand times apart
    noisy = state["noisy"]
    told = {"class_labels": torch.full((4,), 3)} if config else {}
    for time in range(399, 0, -40):
        with torch.no_grad():
            guess = network(noisy, time, **told).sample
        noisy = library.step(guess, time, noisy, use_clipped_model_output=True).prev_sample
    expected = ((noisy + 1) / 2).clamp(0, 1)
    assert (generator.render(state) - expected).abs().max() < 1e-5
    assert expected.std() > 0.02


def test_classes_change_the_picture(pipelines: dict[str, Path]) -> None:
    generator, images = diffusion(str(pipelines["classes"]), classes=list("abcde")), named_pictures(2, 16)
    one, two = (generator.render(start(generator, images, label=label)) for label in (1, 2))
    assert (one - two).abs().max() > 1e-3
    assert generator.classes == list("abcde")


def test_the_old_layout_without_folders_is_known(tmp_path: Path, pipelines: dict[str, Path]) -> None:
    flat, nested = diffusion(str(save_pipeline(tmp_path, flat=True))), diffusion(str(pipelines["plain"]))
    images = named_pictures(2, 16)
    assert torch.equal(flat.render(start(flat, images)), nested.render(start(nested, images)))


def test_size_and_provenance(pipelines: dict[str, Path]) -> None:
    digest = weights.file_sha256(pipelines["plain"] / "unet" / WEIGHTS)
    generator = diffusion(str(pipelines["plain"]), sha256=digest)
    account = generator.provenance()
    assert generator.size == 16
    assert (account["network"], account["weights"], account["prediction"]) == ("UNet2DModel", digest, "epsilon")
    assert account["library"].startswith("diffusers ")
    assert "strength=0.4" in account["denoising"]


def test_moving_it_moves_the_network_and_the_ladder(pipelines: dict[str, Path]) -> None:
    generator = diffusion(str(pipelines["plain"]))
    assert generator.to("meta") is generator
    assert generator.levels.kept.device.type == "meta"
    assert next(generator.denoiser.network.parameters()).device.type == "meta"  # type: ignore[attr-defined]


def test_a_hub_id_fetches_network_and_scheduler(pipelines: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    calls: list[Any] = []

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        calls.append((name, revision, allow_patterns))
        return str(pipelines["plain"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert diffusion("someone/ddpm", revision="abc").size == 16
    assert calls[0][:2] == ("someone/ddpm", "abc")
    assert {"unet/config.json", f"unet/{WEIGHTS}", "scheduler/scheduler_config.json", "scheduler_config.json"} <= set(calls[0][2])


@pytest.fixture
def broken(pipelines: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a pipeline for a test to break."""
    return shutil.copytree(pipelines["plain"], tmp_path / "broken")


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_a_missing_scheduler_is_refused(broken: Path) -> None:
    shutil.rmtree(broken / "scheduler")
    with pytest.raises(BadWeights, match=r"no scheduler_config.json in it or in its folder scheduler"):
        diffusion(str(broken))


@pytest.mark.parametrize(("key", "problem"), [("conv_out.bias", "lack"), ("extra.weight", "also have")])
def test_weights_of_another_network_are_refused(broken: Path, key: str, problem: str) -> None:
    state = load_file(broken / "unet" / WEIGHTS)
    if state.pop(key, None) is None:
        state[key] = torch.zeros(2)
    save_file(state, broken / "unet" / WEIGHTS, {"format": "pt"})
    with pytest.raises(BadWeights, match=f"the weights {problem} {key}, config.json"):
        diffusion(str(broken))


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"_class_name": "UNet2DConditionModel"}, "names the class 'UNet2DConditionModel'; a UNet2DModel is needed"),
        ({"in_channels": 4}, "takes 4 channels"),
        ({"sample_size": [16, 32]}, "the side of its square images is needed"),
        ({"time_embedding_type": "fourier"}, "embedded in another way"),
    ],
)
def test_another_kind_of_network_is_refused(broken: Path, entries: dict[str, Any], complaint: str) -> None:
    change(broken / "unet" / "config.json", **entries)
    with pytest.raises(BadPart, match=complaint):
        diffusion(str(broken))


def test_a_scheduler_of_another_family_is_refused(broken: Path) -> None:
    (broken / "scheduler" / "scheduler_config.json").write_text('{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3}')
    with pytest.raises(BadPart, match="describes no noise by betas"):
        diffusion(str(broken))
    (broken / "scheduler" / "scheduler_config.json").write_text("{not json")
    with pytest.raises(BadWeights, match="not JSON"):
        diffusion(str(broken))
