"""Guided denoising: its arithmetic with an exact denoiser, networks of diffusers, and OpenAI's checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import adm as module
from counterfoil.parts.generators.adm import RELEASED, AdmDenoiser, AdmUNet, Flags, adm, signal_left
from counterfoil.parts.generators.diffusion import (
    Denoising,
    DiffusionGenerator,
    NoiseLevels,
    Prediction,
    Process,
    add_noise,
    diffusion,
)
from tests.generators.make_references import ADM_FILE, inputs
from tests.generators.named_weights import named_pictures
from tests.generators.small import (
    ADMS,
    MEAN,
    SPREAD,
    GaussianDenoiser,
    gradient_of,
    linear_process,
    save_adm,
    save_pipeline,
    start,
)


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


def test_an_unknown_prediction_is_refused() -> None:
    with pytest.raises(BadPart, match="predicts 'flow'"):
        Process(torch.ones(3), "flow")  # type: ignore[arg-type]


def exact(**options: Any) -> DiffusionGenerator:
    return DiffusionGenerator(GaussianDenoiser(), Denoising(**options))


def advance(generator: DiffusionGenerator, state: State, steps: int) -> State:
    for _ in range(steps):
        state = generator.step(state, torch.zeros_like(state["noisy"]))
    return state


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


def test_the_old_layout_without_folders_is_known(tmp_path: Path, pipelines: dict[str, Path]) -> None:
    flat, nested = diffusion(str(save_pipeline(tmp_path, flat=True))), diffusion(str(pipelines["plain"]))
    images = named_pictures(2, 16)
    assert torch.equal(flat.render(start(flat, images)), nested.render(start(nested, images)))


MILLIONS = {  # parameters, as the papers and the files' own names have them
    "64x64_diffusion": 296,
    "128x128_diffusion": 422,
    "256x256_diffusion": 554,
    "256x256_diffusion_uncond": 553,
    "512x512_diffusion": 559,
    "imagenet64_uncond_100M_1500K": 121,
    "imagenet64_cond_270M_250K": 273,
    "cifar10_uncond_50M_500K": 53,
    "lsun_uncond_100M_1200K_bs128": 114,
}


@pytest.mark.parametrize("name", list(RELEASED))
def test_released_flags_build_networks_of_the_right_size(name: str) -> None:
    found = module.read_flags(None, file=Path(f"models/{name}.pt"))
    with torch.device("meta"):
        network = AdmUNet(found, classes=1000 if found.class_cond else None)
    count = sum(value.numel() for value in network.parameters()) / 1e6
    if name in MILLIONS:
        assert count == pytest.approx(MILLIONS[name], abs=1)
    assert count > 50


def test_text_and_mapping_say_the_same() -> None:
    text = "--image_size 64 --attention_resolutions 32,16 --class_cond True --use_fp16 True --lr=1e-4"
    values = {"image_size": 64, "attention_resolutions": [32, 16], "class_cond": True, "dropout": 0.1}
    assert module.read_flags(text, file=Path("x")) == module.read_flags(values, file=Path("x"))
    assert module.read_flags(text, file=Path("x")) == Flags(image_size=64, attention_resolutions="32,16", class_cond=True)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("--image_size", "each with its value"),
        ("image_size 64", "each with its value"),
        ("--image_sise 64", "no flag 'image_sise'; flags are image_size"),
        ("--zzz 64", "no flag 'zzz'; flags are image_size"),
        ("--image_size big", "image_size: input should be a valid integer, .* got 'big'"),
        ("--class_cond maybe", "class_cond: input should be a valid boolean"),
        ("--noise_schedule square", "linear or cosine"),
        ("--image_size 48", "give channel_mult too"),
        ("--num_channels 40", "40 channels; it has to be a multiple of 32"),
        ("--channel_mult 1,x", "numbers with commas between"),
        ("--num_heads 5", "cannot be shared among 5 attention heads"),
        ("--num_head_channels 512", "cannot be shared among 0 attention heads"),
    ],
)
def test_bad_flags_are_refused(given: Any, complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        module.read_flags(given, file=Path("x"))


@pytest.mark.parametrize("case", list(ADMS))
def test_stored_numbers_of_the_releases_own_code_come_out_again(tmp_path: Path, case: str) -> None:
    generator, expected = adm(str(save_adm(tmp_path, case)), flags=ADMS[case]), load_file(ADM_FILE)
    denoiser = generator.denoiser
    assert isinstance(denoiser, AdmDenoiser)
    noisy, times, classes = inputs(case)
    with torch.no_grad():
        guess = denoiser.predict(noisy, times, classes)
        clean, _ = denoiser.process.split(guess, noisy, denoiser.process.alphas_cumprod[times].reshape(-1, 1, 1, 1))
    assert (guess - expected[f"{case}.guess"][:, :3]).abs().max() < 5e-5
    assert (clean - expected[f"{case}.clean"]).abs().max() < 2e-4


def test_a_checkpoint_with_its_released_name_needs_no_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.RELEASED, "small_release", "--image_size 32 --num_channels 32 --num_res_blocks 1 --num_heads 1")
    file = save_adm(tmp_path, "improved", "small_release.pt", num_heads=1, learn_sigma=False)
    assert adm(str(file)).size == 32


def test_classes_are_counted_in_the_checkpoint(tmp_path: Path) -> None:
    generator = adm(str(save_adm(tmp_path, "guided")), flags=ADMS["guided"])
    assert generator.denoiser.classes == 1000
    assert generator.classes is not None and (len(generator.classes), generator.classes[1]) == (1000, "goldfish")
    assert adm(str(save_adm(tmp_path, "improved")), flags=ADMS["improved"]).denoiser.classes is None


def test_the_noise_of_training_is_known() -> None:
    for schedule, kept in (("linear", [0.9999, 0.0785, 4.0e-5]), ("cosine", [0.99996, 0.4938, 0.0])):
        found = signal_left(Flags(noise_schedule=schedule))[[0, 499, 999]].tolist()
        assert found == pytest.approx(kept, rel=2e-3, abs=1e-6)
    few, many = signal_left(Flags(diffusion_steps=1000)), signal_left(Flags(diffusion_steps=4000))
    assert len(many) == 4000
    assert float(many[1999]) == pytest.approx(float(few[499]), rel=1e-2)
