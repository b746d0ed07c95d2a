"""Every model, generator, oracle and data set that `counterfoil list` shows is made by its name and passes its contract check.

What comes from a hub is made from small things saved in the hub's own layout, without a network.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from counterfoil import registry
from counterfoil.testing import check_dataset, check_generator, check_model, check_oracle
from tests import hub
from tests.fakes import CLASSES
from tests.oracles.conftest import clip_folder, openclip_folder
from tests.worlds import FAKES, arrays, folder

__all__ = ["clip_folder", "openclip_folder"]

Made = tuple[str, dict[str, Any]]
NAMES = list(CLASSES)
TINY = f"python:{FAKES}:TinyModel"
PLAIN = {"classes": NAMES, "size": 16, "mean": 0, "std": 1}
WITH_OWN_TESTS = {"lab"}  # its parts are checked where its weights are


def registered(role: str) -> list[str]:
    """The kinds this package registers, without those of plug-ins."""
    found = entry_points(group=f"counterfoil.{role}s")
    return sorted({entry.name for entry in found if entry.value.startswith("counterfoil.")} - WITH_OWN_TESTS)


@pytest.fixture
def saved(tmp_path: Path, clip_folder: Path, openclip_folder: Path) -> dict[str, Callable[[], Made]]:
    """For each kind, a name and options that make a small one."""
    from tests.models import programs
    from tests.models.test_hf_models import saved as saved_hf
    from tests.models.test_timm_models import saved as saved_timm
    from tests.oracles import small_vlm

    words = ["red boot", "blue bag", "hat"]
    return {
        "model timm": lambda: (f"timm:{saved_timm(tmp_path)}", {}),
        "model torchvision": lambda: ("torchvision:mobilenet_v3_small", {"pretrained": False}),
        "model python": lambda: (TINY, {}),
        "model hf": lambda: (f"hf:{saved_hf(tmp_path)}", {}),
        "model openclip": lambda: (f"openclip:{openclip_folder}", {"classes": words}),
        "model onnx": lambda: (f"onnx:{programs.onnx_file(tmp_path / 'm.onnx')}", PLAIN),
        "model torchscript": lambda: (f"torchscript:{programs.scripted(tmp_path / 'm.pt')}", PLAIN),
        "model pt2": lambda: (f"pt2:{programs.exported(tmp_path / 'm.pt2')}", PLAIN),
        "model grouped": lambda: (f"grouped:{TINY}", {"groups": {"insect": ["ant", "bee"], "mammal": "2-3"}}),
        "oracle clip": lambda: (f"clip:{clip_folder}", {}),
        "oracle openclip": lambda: (f"openclip:{openclip_folder}", {}),
        "oracle classifier": lambda: (f"classifier:{TINY}", {}),
        "oracle ensemble": lambda: ("ensemble:", {"members": [f"classifier:{TINY}", f"clip:{clip_folder}"]}),
        "oracle vlm": lambda: (f"vlm:{small_vlm.saved(tmp_path)}", {}),
        "oracle human": lambda: ("human:", {}),
        "dataset folder": lambda: (f"folder:{folder(tmp_path)}", {}),
        "dataset tensors": lambda: (f"tensors:{arrays(tmp_path / 'a.npz', 12)}", {}),
        "dataset csv": lambda: _csv(tmp_path),
        "dataset webdataset": lambda: _webdataset(tmp_path),
        "dataset hfdata": lambda: _hfdata(tmp_path),
        "dataset torchvision-data": lambda: _mnist(tmp_path),
        "dataset subset": lambda: (f"subset:folder:{folder(tmp_path)}", {"per_class": 2, "seed": 1}),
    }


def _csv(path: Path) -> Made:
    rows = [f"{file.relative_to(path)},{file.parent.name}" for file in sorted(folder(path).rglob("*.png"))]
    (path / "list.csv").write_text("path,label\n" + "\n".join(rows))
    return f"csv:{path / 'list.csv'}", {}


def _webdataset(path: Path) -> Made:
    with tarfile.open(path / "x-0.tar", "w") as archive:
        for number, file in enumerate(sorted(folder(path / "photos").rglob("*.png"))):
            (path / "label").write_text(file.parent.name)
            archive.add(file, f"{number}.png")
            archive.add(path / "label", f"{number}.cls")
    return f"webdataset:{path / 'x-{0..0}.tar'}", {}


def _hfdata(path: Path) -> Made:
    import datasets

    files = sorted(folder(path / "photos").rglob("*.png"))
    columns = {"image": [str(file) for file in files], "label": [NAMES.index(file.parent.name) for file in files]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(path / "saved")
    return f"hfdata:{path / 'saved'}", {}


def _mnist(path: Path) -> Made:
    from tests.datasets.test_torchvision_sets import idx

    idx(path)
    return "torchvision-data:MNIST", {"root": str(path)}


GENERATOR_SOURCE = """
from counterfoil.generators.pixels import PixelGenerator
from tests.fakes import TinyAutoencoder
from torch import nn
import torch

class Painter(nn.Module):
    latent_shape, size = (6,), 16

    def decode(self, latents):
        waves = torch.sin(torch.arange(6 * 768).float()).reshape(6, 768)
        return torch.sigmoid(latents @ waves).reshape(-1, 3, 16, 16)

def coder():
    return TinyAutoencoder()
"""


def _generators(path: Path) -> dict[str, Callable[[], Made]]:
    """For each kind of generator, a name and options that make a small one."""
    from tests.generators.conftest import save_network
    from tests.generators.diffusion.conftest import save_pipeline
    from tests.generators.diffusion.make_reference import CASES
    from tests.generators.diffusion.test_adm import save as save_adm
    from tests.generators.vqgan.conftest import save_run

    small = {"image_size": 16, "channel_mult": "1,2", "attention_resolutions": "8"}

    def own(function: str) -> str:
        (path / "mine.py").write_text(GENERATOR_SOURCE)
        return f"{path / 'mine.py'}:{function}"

    return {
        "autoencoder": lambda: (f"autoencoder:{save_network(path / 'vq', 'VQModel')}", {}),
        "pixels": lambda: ("pixels:l2", {"epsilon": 0.5}),
        "transforms": lambda: ("transforms:brightness,rotation,defocus-blur", {}),
        "vqgan": lambda: (f"vqgan:{save_run(path / 'run')}", {}),
        "diffusion": lambda: (f"diffusion:{save_pipeline(path / 'ddpm')}", {"steps": 3}),
        "adm": lambda: (f"adm:{save_adm(path, 'improved', **small)}", {"flags": {**CASES["improved"], **small}, "steps": 3}),
        "style": lambda: _style(path),
        "gan": lambda: (f"gan:{own('Painter')}", {"steps": 3, "candidates": 2}),
        "python": lambda: (f"python:{own('coder')}", {}),
        "reconstruct": lambda: (f"reconstruct:autoencoder:{save_network(path / 'kl', 'AutoencoderKL')}", {}),
    }


def _style(path: Path) -> Made:
    from safetensors.torch import save_file

    from counterfoil.generators.style import adain
    from tests.generators.named_weights import named_weights

    for name, network in (("encoder", adain.encoder()), ("decoder", adain.decoder())):
        state = {key: value * (2**0.5 if value.dim() > 1 else 1) for key, value in named_weights(network.state_dict()).items()}
        if name == "decoder":
            state["28.bias"] += 0.5  # about mid-grey
        save_file(state, path / f"{name}.safetensors")
    weights = {name: str(path / f"{name}.safetensors") for name in ("encoder", "decoder")}
    return f"style:{folder(path / 'styles')}", {**weights, "styles": 2}


@contextmanager
def _endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    from tests.models.endpoint import served

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served() as endpoint:
        yield endpoint.url, {"backoff": 0.0}


@pytest.mark.parametrize("kind", [kind for kind in registered("model") if kind not in ("http", "https")])
def test_models(kind: str, saved: dict[str, Callable[[], Made]]) -> None:
    name, options = saved[f"model {kind}"]()
    model = registry.create("model", name, options)
    check_model(model, size=model.size or 16)
    json.dumps(model.provenance() if hasattr(model, "provenance") else {})


@pytest.mark.skipif("http" not in registered("model"), reason="the package is installed without it")
def test_a_model_behind_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with _endpoint(monkeypatch) as (name, options):
        check_model(registry.create("model", name, options), size=16)
    assert registry.create("model", "https://models.example/", {"classes": NAMES}).provenance()["source"].startswith("https://")


@pytest.mark.parametrize("kind", registered("generator"))
def test_generators(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterfoil.generators.style import generator as style

    monkeypatch.setattr(style, "STYLE_SIDE", 64)  # style pictures are looked at in a quarter of the usual size
    name, options = _generators(tmp_path)[kind]()
    generator = registry.create("generator", name, options)
    check_generator(generator, size=generator.size or 16)
    json.dumps(generator.provenance())


@pytest.mark.parametrize("kind", ["autoencoder", "diffusion"])
def test_generators_by_their_name_on_the_hub(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = _generators(tmp_path)[kind]()
    repository = hub.cached(monkeypatch, tmp_path / "cache", Path(name.partition(":")[2]), "someone/something")
    check_generator(registry.create("generator", f"{kind}:{repository}", options), size=16 if kind == "diffusion" else 32)


@pytest.mark.parametrize("kind", registered("oracle"))
def test_oracles(kind: str, saved: dict[str, Callable[[], Made]]) -> None:
    name, options = saved[f"oracle {kind}"]()
    check_oracle(registry.create("oracle", name, options), NAMES, size=32)


@pytest.mark.parametrize("kind", registered("dataset"))
def test_data_sets(kind: str, saved: dict[str, Callable[[], Made]]) -> None:
    name, options = saved[f"dataset {kind}"]()
    data = registry.create("dataset", name, options)
    check_dataset(data)
    json.dumps(data.provenance())


@pytest.mark.parametrize("role", ["model", "generator", "oracle", "dataset"])
def test_every_source_says_what_it_is(role: str) -> None:
    for part in registry.listed(role):
        assert part.summary.endswith("."), f"{role} {part.kind}: the first line of its documentation is a sentence"
        assert 20 < len(part.summary) <= 130
