"""VQGAN checkpoints: codebooks, the authors' numbers, and files that are refused."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.vqgan import GumbelCodes, GumbelVqganAutoencoder, NearestCodes, vqgan
from counterfoil.testing import check_generator
from tests.generators.make_references import VQGAN_FILE
from tests.generators.named_weights import named_pictures, named_weights, uniform
from tests.generators.small import gradient_of, save_run, start, weights_of

Codebook = NearestCodes | GumbelCodes


def codebook(kind: type[Codebook], count: int = 300, width: int = 12) -> Any:
    book = kind(count, width).requires_grad_(False)
    book.load_state_dict(named_weights(book.state_dict()))
    return book


def latents(count: int = 8, width: int = 12) -> Tensor:
    return uniform(count, "latents", width, 5, 4) * 2 - 1


def test_the_nearest_code_is_the_nearest() -> None:
    book, given = codebook(NearestCodes), latents()
    cells = given.permute(0, 2, 3, 1).reshape(-1, 12).double()
    distances = torch.cdist(cells, book.embedding.weight.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(book.indices(given).flatten(), distances.argmin(1))
    assert torch.equal(book(given).permute(0, 2, 3, 1).reshape(-1, 12), book.embedding.weight[distances.argmin(1)])


def test_codes_about_equally_near_are_told_apart_as_the_authors_do() -> None:
    book, given = codebook(NearestCodes), latents() * 40  # codes so close together that rounding decides
    book.embedding.weight.mul_(1e-5)
    cells = given.permute(0, 2, 3, 1).reshape(-1, 12)
    table = book.embedding.weight
    distances = torch.sum(cells**2, dim=1, keepdim=True) + torch.sum(table**2, dim=1) - 2 * torch.matmul(cells, table.t())
    assert (distances == distances.amin(1, keepdim=True)).sum(1).float().mean() > 2  # many ties
    assert torch.equal(book.indices(given).flatten(), distances.argmin(1))


def test_the_most_probable_code_is_taken() -> None:
    book, given = codebook(GumbelCodes), latents()
    chances = torch.einsum("ndhw,kd->nkhw", given, book.proj.weight[:, :, 0, 0]) + book.proj.bias[:, None, None]
    assert torch.equal(book.indices(given), chances.argmax(1))
    assert len(book.indices(given).unique()) > 20


def test_the_expected_code_and_its_gradient_are_those_of_the_softmax() -> None:
    book, given = codebook(GumbelCodes), latents(3)
    direct, saving = given.clone().requires_grad_(), given.clone().requires_grad_()
    whole = torch.einsum("nkhw,kd->ndhw", book.proj(direct).softmax(1), book.embed.weight)
    expected = book.mean_code(saving)
    assert torch.allclose(expected, whole, atol=1e-6)
    weighting = latents(3).flip(1)
    gradients = [torch.autograd.grad((out * weighting).sum(), leaf)[0] for out, leaf in ((whole, direct), (expected, saving))]
    assert torch.allclose(*gradients, atol=1e-6)
    assert gradients[0].abs().sum() > 0


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("kind", [NearestCodes, GumbelCodes])
def test_no_table_of_more_than_one_picture_is_made(kind: type[Codebook]) -> None:
    book, given = codebook(kind, count=1000), latents(16)
    with Largest() as largest:
        book(given)
    assert largest.numel == 1000 * 20


KINDS = ["VQModel", "GumbelVQ"]


def test_a_gumbel_code_passes_its_gradient_through_the_expected_code(runs: dict[str, Path]) -> None:
    generator, weighting = vqgan(str(runs["GumbelVQ"])), named_pictures(2, 16, name="weighting")
    state, autoencoder = start(generator, named_pictures(2, 16)), generator.autoencoder
    assert isinstance(autoencoder, GumbelVqganAutoencoder)
    code = autoencoder.quantise(state["latent"]).requires_grad_()
    on_code = torch.autograd.grad((autoencoder.decode(code) * weighting).sum(), code)[0]
    leaf = state["latent"].clone().requires_grad_()
    expected = torch.autograd.grad(autoencoder.relax(leaf), leaf, on_code)[0]
    found = gradient_of(generator, state, weighting)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, on_code, atol=1e-3)


def test_any_configuration_is_built(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"num_res_blocks": 2, "ch_mult": [1, 1, 2], "attn_resolutions": []}
    save_run(tmp_path, **changes)
    torch.save({"state_dict": weights_of("VQModel", **changes)}, tmp_path / "last.ckpt")
    check_generator(vqgan(str(tmp_path)), exact=True)


def test_ckpt_and_safetensors_are_the_same(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(runs["VQModel"] / "model.yaml", tmp_path / "settings.yml")
    save_file(weights_of("VQModel"), tmp_path / "vqgan.safetensors")
    images = named_pictures(2, 16)
    rendered = []
    for place in (tmp_path / "vqgan.safetensors", tmp_path, runs["VQModel"] / "last.ckpt"):
        generator = vqgan(str(place))
        rendered.append(generator.render(start(generator, images)))
    assert torch.equal(rendered[0], rendered[1])
    assert torch.equal(rendered[0], rendered[2])


def test_the_layout_of_a_training_run_is_known(runs: dict[str, Path], tmp_path: Path) -> None:
    for folder, name in (("checkpoints", "last.ckpt"), ("configs", "model.yaml")):
        (tmp_path / folder).mkdir()
        shutil.copy(runs["VQModel"] / name, tmp_path / folder / name)
    assert vqgan(str(tmp_path)).size == 16
    assert vqgan(str(tmp_path / "checkpoints" / "last.ckpt")).size == 16


def test_callbacks_that_lightning_left_in_a_checkpoint_are_passed_over(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pytorch_lightning.callbacks.model_checkpoint"
    for depth in range(1, 4):
        parent = ".".join(name.split(".")[:depth])
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    callback = type("ModelCheckpoint", (), {"__module__": name})
    sys.modules[name].ModelCheckpoint = callback  # type: ignore[attr-defined]
    content = {"callbacks": {callback: {"best_model_path": "x"}}, "state_dict": weights_of("VQModel")}
    torch.save(content, tmp_path / "last.ckpt")
    monkeypatch.undo()
    assert name not in sys.modules
    shutil.copy(runs["VQModel"] / "model.yaml", tmp_path)
    assert vqgan(str(tmp_path)).size == 16


def stages(generator: LatentGenerator, images: Tensor) -> dict[str, Tensor]:
    autoencoder: Any = generator.autoencoder
    with torch.no_grad():
        latents = autoencoder.latents(images * 2 - 1)
        return {
            "latents": latents,
            "indices": autoencoder.network.quantize.indices(latents),
            "decoded": autoencoder.samples(autoencoder.quantise(latents)),
        }


@pytest.mark.parametrize("kind", ["VQModel", "GumbelVQ"])
def test_stored_numbers_of_the_authors_code_come_out_again(runs: dict[str, Path], kind: str) -> None:
    expected = load_file(VQGAN_FILE)
    for name, values in stages(vqgan(str(runs[kind])), named_pictures(2, 16)).items():
        reference = expected[f"{kind}.{name}"]
        if name == "indices":
            assert torch.equal(values, reference)
            assert len(reference.unique()) > 20  # the images need many codes
        else:
            assert (values - reference).abs().max() < 5e-5


@pytest.mark.parametrize("kind", [NearestCodes, GumbelCodes])
def test_codes_are_chosen_in_full_precision(kind: type[Codebook]) -> None:
    book, given = codebook(kind), latents()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(book.indices(given), book.indices(given.clone()))
        lowered = book(given)
    assert torch.equal(lowered, book(given))
    assert lowered.dtype == torch.float32
