"""StyleGAN-XL: its layers by formulas written out, published files read without running them, and search in w and w+."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from scipy.signal import convolve2d
from torch import Tensor

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts.generators.stylegan_pickle import read_pickle
from counterfoil.parts.generators.stylegan_xl import (
    SETTINGS,
    LayerSettings,
    StyleganGenerator,
    filtered_relu,
    modulated_convolution,
    stylegan_xl,
)
from tests.generators.stylegan import CLASSES, LAYERS, SIZE, WIDTH, save_pickle, save_stylegan, values

NAMES = ["one", "two", "three"]


def load(folder: Path, **options: Any) -> StyleganGenerator:
    return stylegan_xl(str(save_stylegan(folder)), **{"classes": NAMES, "steps": 4, **options})


def test_a_modulated_convolution_has_weights_of_its_own_for_every_row() -> None:
    x, weight, styles = values("x", 2, 4, 6, 6), values("weight", 3, 4, 3, 3), values("styles", 2, 4)
    expected = []
    for row in range(2):
        own = weight * styles[row][None, :, None, None]
        own = own / own.square().sum(dim=(1, 2, 3), keepdim=True).sqrt() * 0.5
        expected.append(F.conv2d(x[row : row + 1], own, padding=2))

    found = modulated_convolution(x, weight, styles, torch.tensor(0.5), demodulate=True)

    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_the_activation_is_between_two_filters() -> None:
    x, up, down = values("x", 1, 1, 5, 5), values("up", 8), values("down", 4)
    settings = LayerSettings(rgb=False, up=4, down=2, padding=(3, 2, 1, 4), clamp=0.9)
    spread = np.zeros((20, 20))
    spread[::4, ::4] = x[0, 0].numpy()
    wide = convolve2d(np.pad(spread, ((1, 4), (3, 2))), np.outer(up, up), mode="valid") * 16
    wide = np.clip(np.where(wide > 0, wide, 0.2 * wide) * np.sqrt(2), -0.9, 0.9)
    expected = convolve2d(wide, np.outer(down, down), mode="valid")[::2, ::2]

    found = filtered_relu(x, settings, up, down)

    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-4, atol=1e-5)


def test_a_frame_may_be_cut_off() -> None:
    x = values("x", 1, 2, 5, 5)
    found = filtered_relu(x, LayerSettings(rgb=True, up=1, down=1, padding=(-1, -2, 0, -1)), None, None)
    assert torch.equal(found, x[:, :, :4, 1:3])


def test_the_input_is_sines_turned_and_moved_by_the_style(tmp_path: Path) -> None:
    layer = load(tmp_path).module.input
    state, w = load_file(tmp_path / "small.safetensors"), values("w", 1, WIDTH)
    turn = (w @ (state["input.affine.weight"] / WIDTH**0.5).T + state["input.affine.bias"])[0].double().numpy()
    turn = turn / np.hypot(turn[0], turn[1])
    rotation = np.array([[turn[0], -turn[1], 0], [turn[1], turn[0], 0], [0, 0, 1]])
    shift = np.array([[1, 0, -turn[2]], [0, 1, -turn[3]], [0, 0, 1]])
    settings = layer.settings
    frequencies, phases = state["input.freqs"].double().numpy(), state["input.phases"].double().numpy()
    expected = np.zeros((8, settings.input_size, settings.input_size))
    for row in range(settings.input_size):
        for column in range(settings.input_size):
            place = [(each + 0.5 - settings.input_size / 2) / settings.sampling_rate for each in (column, row)]
            seen = (rotation @ shift @ [*place, 1])[:2]
            waves = np.sin(2 * np.pi * (frequencies @ seen + phases))
            band = (1 - (np.hypot(*frequencies.T) - settings.bandwidth) / (settings.sampling_rate / 2 - settings.bandwidth)).clip(
                0, 1
            )
            expected[:, row, column] = state["input.weight"].double().numpy() / np.sqrt(8) @ (waves * band)

    np.testing.assert_allclose(layer(w)[0], expected, atol=1e-5)


def test_the_whole_network_moves_its_image_as_its_input_is_moved(tmp_path: Path) -> None:
    network = load(tmp_path).module
    with torch.no_grad():
        image = network.decode(network.mean)
        network.input.transform[0, 2] = -2 / SIZE  # by two pixels
        moved = network.decode(network.mean)

    inside = slice(3, SIZE - 3)
    off = (moved[:, :, inside, 5:-3] - image[:, :, inside, 3:-5]).square().mean()
    unmoved = (moved - image)[:, :, inside, inside].square().mean()
    assert off < unmoved / 20


@pytest.mark.parametrize(("space", "shape"), [("w", (WIDTH,)), ("w+", (LAYERS + 2, WIDTH))])
def test_an_image_is_found_from_the_mean_of_its_class(tmp_path: Path, space: Any, shape: tuple[int, ...]) -> None:
    generator = load(tmp_path, space=space, steps=60, learning_rate=0.1)
    network, labels, seeds = generator.module, torch.tensor([2, 0]), torch.arange(2)
    with torch.no_grad():
        images = network.decode(network.mean[labels] + 0.3 * values("elsewhere", 2, WIDTH)).clamp(0, 1)
        state = generator.start(images, labels, seeds)
        begin = network.decode(network.mean[labels]).clamp(0, 1)

    assert state["latent"].shape == (2, *shape)
    assert (generator.render(state) - images).square().mean() < 0.5 * (begin - images).square().mean()


def test_without_steps_an_image_begins_at_its_own_class(tmp_path: Path) -> None:
    generator = load(tmp_path, steps=0)
    labels = torch.arange(CLASSES)
    state = generator.start(torch.zeros(CLASSES, 3, SIZE, SIZE), labels, labels)
    assert torch.equal(state["latent"], generator.module.mean) and generator.classes == NAMES


def test_the_command_makes_a_file_without_running_the_pickle(tmp_path: Path) -> None:
    source, out = save_pickle(tmp_path / "small.pkl"), tmp_path / "out.safetensors"
    command = [sys.executable, "-m", "counterfoil.parts.generators.stylegan_pickle", str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert f"{SIZE} × {SIZE} pixels, {LAYERS + 1} layers" in done.stdout
    assert stylegan_xl(str(out), classes=NAMES).size == SIZE


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.call = (function, given)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    ("hostile", "named"),
    [
        (Call(os.system, "touch ran"), "posix.system"),
        (Call(eval, "open('ran', 'w')"), "builtins.eval"),
        (Call(subprocess.Popen, ["touch", "ran"]), "subprocess.Popen"),
        (Call(getattr, "torch", "load"), "builtins.getattr"),
        (Call(Path, "ran"), "pathlib"),
    ],
)
def test_a_hostile_pickle_is_refused_and_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: Any, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(hostile)
    (tmp_path / "bad.pkl").write_bytes(content)
    with pytest.raises(BadWeights, match=rf"names {named}.*nothing in it was run"):
        read_pickle(tmp_path / "bad.pkl")
    assert not (tmp_path / "ran").exists()


def test_functions_of_libraries_are_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = Call(torch.save, 1, "ran")
    tensors, _ = read_pickle(save_pickle(tmp_path / "small.pkl", extra=hostile))
    assert "w_avg" in tensors and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x04", pickle.dumps({"G": 1}), pickle.dumps([]), pickle.dumps({"G_ema": 3})])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.pkl").write_bytes(content)
    with pytest.raises(BadWeights, match=r"other\.pkl: .*nothing in it was run$"):
        read_pickle(tmp_path / "other.pkl")


def save_changed(folder: Path, settings: str | None, **tensors: Tensor | None) -> Path:
    file = save_stylegan(folder)
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        known = (opened.metadata() or {})[SETTINGS]
    state = {**load_file(file), **{name.replace("__", "."): value for name, value in tensors.items()}}
    metadata = {SETTINGS: known if settings is None else settings}
    save_file({name: value for name, value in state.items() if value is not None}, file, metadata)
    return file


@pytest.mark.parametrize(
    ("settings", "tensors", "message"),
    [
        ("[]", {}, "settings are not of a StyleGAN-XL"),
        ("{", {}, "settings are not of a StyleGAN-XL"),
        (None, {"layers__2__bias": None}, r"lacks layers\.2\.bias"),
        (None, {"more": torch.zeros(1)}, "it also has more"),
        (None, {"layers__1__weight": torch.zeros(2, 3, 3, 3)}, "settings are not of a StyleGAN-XL"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, settings: str | None, tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(BadWeights, match=message):
        stylegan_xl(str(save_changed(tmp_path, settings, **tensors)), classes=NAMES)


def test_what_cannot_be_used_is_said_with_what_to_do(tmp_path: Path) -> None:
    save_stylegan(tmp_path)
    with pytest.raises(
        BadWeights, match=r"'python -m counterfoil\.parts\.generators\.stylegan_pickle .*small\.pkl small\.safetensors'"
    ):
        stylegan_xl(str(tmp_path / "small.pkl"))
    with pytest.raises(BadSpec, match="the network is told 3 classes by number"):
        stylegan_xl(str(tmp_path / "small.safetensors"))
    with pytest.raises(BadSpec, match="no space named 'z'"):
        load(tmp_path, space="z")
