"""Masks: kept in files, obeyed by the search, and decoded as a window where that is possible."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.scheduler import Engine
from counterfoil.parts import registry
from counterfoil.parts.generators.autoencoders import GaussianAutoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.masked import Mask, MaskedGenerator, WindowGenerator, load_mask, mask_generator, save_mask
from counterfoil.parts.generators.pixels import pixels
from counterfoil.testing import check_generator, pictures
from tests import climbs as reference
from tests.climbs import COLUMNS, jobs
from tests.fakes import CommandedOracle, TinyAutoencoder, TinyModel
from tests.worlds import FAKES, arrays


def some(shape: tuple[int, ...] = (48, 4, 4), every: int = 7) -> Mask:
    kept = torch.zeros(shape).flatten()
    kept[::every] = 1
    return Mask(kept.reshape(shape).bool(), {"regularisation": 36.36})


def test_a_mask_comes_back_from_its_file_with_what_is_known_of_it(tmp_path):
    file = save_mask(some(), tmp_path / "mask")
    again = load_mask(file)
    assert torch.equal(again.kept, some().kept)
    assert again.sha256 == some().sha256 != some(every=8).sha256
    with_halo = Mask(some().kept, halo=2)
    assert load_mask(save_mask(with_halo, tmp_path / "other.a1_in1k-0f")).halo == 2 and with_halo.sha256 != some().sha256
    assert (tmp_path / "other.a1_in1k-0f.safetensors").is_file()
    about = json.loads(file.with_suffix(".json").read_text())
    assert about["kept"] == 110 and about["shape"] == [48, 4, 4] and about["sparsity"] == pytest.approx(85.677, abs=0.001)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such weight file"),
        (b"hello", "damaged or of another kind"),
        ({"other": torch.ones(3)}, "holds other, not a tensor named 'kept'"),
        ({"kept": torch.zeros(3)}, "keeps no coordinate"),
    ],
)
def test_files_that_are_no_masks_are_refused(tmp_path, content, complaint):
    from safetensors.torch import save_file

    file = tmp_path / "mask.safetensors"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        save_file(content, file)
    with pytest.raises(BadWeights, match=complaint):
        load_mask(file)


@pytest.mark.parametrize("make", [lambda: LatentGenerator(TinyAutoencoder(), size=16), lambda: pixels("linf", epsilon=0.2)])
def test_a_masked_generator_keeps_the_contract(make):
    inner = make()
    shape = inner.start(pictures(2, 16), torch.zeros(2).long(), torch.zeros(2).long())[inner.moving].shape[1:]
    check_generator(MaskedGenerator(inner, some(tuple(shape))), size=16)


def test_only_the_kept_coordinates_move_and_a_step_is_as_long_as_without_a_mask():
    inner, mask = LatentGenerator(TinyAutoencoder()), some()
    masked = MaskedGenerator(inner, mask)
    zeros = torch.zeros(3).long()
    state = masked.start(pictures(3, 16), zeros, zeros)
    assert state["kept"].shape == (3, 110)
    length = 0.1 * state["scale"][:, None] * 110**0.5  # of a step of 0.1 with `l2` and `scale`
    dense = 0.1 * inner.start(pictures(3, 16), zeros, zeros)["scale"][:, None] * mask.kept.numel() ** 0.5
    assert torch.allclose(length, dense)
    moved = masked.step(state, torch.ones(3, 110))
    change = moved["latent"] - state["latent"]
    assert bool((change[:, mask.kept] != 0).all()) and not bool(change[:, ~mask.kept].any())
    assert torch.equal(moved["latent"][:, mask.kept], moved["kept"])
    assert torch.equal(masked.render(state), inner.render(inner.start(pictures(3, 16), zeros, zeros)))


def test_the_masked_gradient_is_the_kept_part_of_the_whole_one():
    inner, mask = LatentGenerator(TinyAutoencoder()), some()
    masked, zeros = MaskedGenerator(inner, mask), torch.zeros(2).long()
    state = masked.start(pictures(2, 16), zeros, zeros)
    leaf, whole = state["kept"].clone().requires_grad_(), state["latent"].clone().requires_grad_()
    kept = torch.autograd.grad(TinyModel().logits(masked.render({**state, "kept": leaf})).square().sum(), leaf)[0]
    full = torch.autograd.grad(TinyModel().logits(inner.render({**state, "latent": whole})).square().sum(), whole)[0]
    assert torch.allclose(kept, full[:, mask.kept], atol=1e-6)


def test_the_engine_agrees_with_the_plain_algorithm_under_a_mask():
    generator, search = MaskedGenerator(LatentGenerator(TinyAutoencoder()), some()), SearchSpec(budget=3, step=0.2)
    parts, layout = (TinyModel(), generator, CommandedOracle()), EngineSpec(slots=5, batch_size=8)
    engine = Engine(*parts, columns=COLUMNS, search=search, layout=layout, keep_places=True)
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    for done in engine.run(jobs()):
        outcome = reference.guided_search(plain, done.job.image, done.job.label, done.job.seed, search)
        reference.assert_agrees(done.climbs[0], outcome, done.images[0])
        assert done.places[0].shape == (110,)


def test_a_mask_of_another_shape_is_refused():
    masked, zeros = MaskedGenerator(LatentGenerator(TinyAutoencoder()), some((48, 8, 8))), torch.zeros(1).long()
    with pytest.raises(BadSpec, match=r"rows of shape \(48, 8, 8\).*\(48, 4, 4\); fit one"):
        masked.start(pictures(1, 16), zeros, zeros)


def test_run_takes_a_mask(tmp_path):
    from counterfoil.cli.app import app

    data = arrays(tmp_path / "a.npz", 8)
    file = save_mask(some((3, 16, 16)), tmp_path / "mask")
    words = ["run", "--model", f"python:{FAKES}:TinyModel", "--data", f"tensors:{data}", "--generator", "pixels:", "--oracle"]
    words += ["daylight:", "--size", "16", "--set", "budget=2", "--mask", str(file), "--out", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["spec"]["search"]["mask"] == str(file)
    assert some((3, 16, 16)).sha256 in json.dumps(told["provenance"])


def square(channels: int, cells: int, *, first: int, side: int, halo: int = 0) -> Mask:
    kept = torch.zeros(channels, cells, cells, dtype=torch.bool)
    kept[:, first : first + side, first : first + side] = True
    return Mask(kept, halo=halo)


@pytest.fixture(scope="module")
def window_generator():
    found = mask_generator(registry.create("generator", "lab:vqgan"), square(8, 16, first=5, side=6, halo=1))
    assert isinstance(found, WindowGenerator) and found.share == 0.25
    return found


def begin(generator, count=2):
    zeros = torch.zeros(count).long()
    with torch.no_grad():
        return generator.start(pictures(count, 64), zeros, zeros)


def move(generator):
    state = begin(generator)
    signal = torch.randn(state["kept"].shape, generator=torch.Generator().manual_seed(0))
    return generator.step(state, 0.05 * signal * state["scale"][:, None])


def test_the_window_follows_the_whole_decoder_and_the_rest_stays(window_generator):
    inner, state = window_generator.inner, move(window_generator)
    with torch.no_grad():
        before, drawn = window_generator.render(begin(window_generator)), window_generator.render(state)
        assert torch.allclose(before, inner.render(begin(inner)), atol=1e-5)
        whole = inner.render({**state, "latent": window_generator.fill(state)})
    outside = torch.ones_like(before, dtype=torch.bool)
    window_generator.window.cut(outside, grid=window_generator.grid).fill_(False)
    assert torch.equal(drawn[outside], before[outside])
    assert (drawn - whole).square().mean() < 0.15 * (before - whole).square().mean()  # most of what changed


def test_a_fast_window_generator_draws_the_same_but_for_rounding(window_generator):
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        fast = window_generator.accelerate(dtype)
        assert isinstance(fast, WindowGenerator) and fast.decoder.decoder.dtype == dtype
        with torch.no_grad():
            assert (fast.render(begin(fast)) - window_generator.render(begin(window_generator))).abs().max() < near


def test_less_is_decoded(window_generator):
    """Counted, not timed: the arithmetic of the layers after the first doubling shrinks with the window."""
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for generator in (window_generator.inner, window_generator):
        state = begin(generator)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            generator.render(state)
        counts.append(counter.get_total_flops())
    assert counts[1] < 0.45 * counts[0]


class Plain:
    def encode(self, images):
        return images

    def decode(self, latents):
        return latents


@pytest.mark.parametrize(
    ("autoencoder", "mask", "reason"),
    [
        (lambda lab: Plain(), square(3, 8, first=0, side=4), "decodes whole images only"),
        (lambda lab: lab, square(4, 16, first=0, side=16), "in a window of 100 % of the image"),
        (lambda lab: lab, some((4, 256)), "not one of channels, rows and columns"),
    ],
)
def test_where_there_is_no_window_all_is_decoded_and_provenance_says_why(autoencoder, mask, reason):
    lab = registry.create("generator", "lab:kl").autoencoder
    found = mask_generator(LatentGenerator(autoencoder(lab)), mask)
    assert type(found) is MaskedGenerator and reason in found.provenance()["window"]


def test_a_mask_for_another_network_is_refused_in_one_line():
    inner = GaussianAutoencoder(registry.create("generator", "lab:kl").autoencoder.network)
    with pytest.raises(BadSpec, match=r"rows of shape \(9, 16, 16\), which this generator cannot decode"):
        mask_generator(LatentGenerator(inner, size=64), square(9, 16, first=4, side=6))
