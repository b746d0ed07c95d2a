"""A recipe for each source: small networks with random weights in every layout that is read, data, endpoints, own functions."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import datasets
import transformers
from safetensors.torch import save_file

from counterfoil.parts.generators.style import build_decoder, build_encoder
from counterfoil.parts.registry import ROLES
from tests.fakes import CLASSES
from tests.generators.named_weights import named_weights
from tests.generators.small import ADMS, save_adm, save_network, save_run
from tests.generators.small import save_pipeline as save_denoiser
from tests.generators.stylegan import save_stylegan
from tests.generators.vdvae.conftest import save_checkpoint
from tests.parts.datasets import public
from tests.parts.datasets.made import idx
from tests.parts.editors.conftest import save_stable_diffusion
from tests.parts.editors.today import flux_1, sd3
from tests.parts.endpoint import Endpoint, answering, reply, serve
from tests.parts.language.small_models import encoder_decoder, llama
from tests.parts.models.programs import export_program, onnx_file, script_program
from tests.parts.models.saved import SMALL, save_classifier, save_model
from tests.parts.oracles.saved import save_clip, save_openclip, save_siglip, save_vlm
from tests.sources import own
from tests.worlds import FAKES, arrays
from tests.worlds import folder as photos

Made = tuple[str, dict[str, Any]]
"""The name of a part and its options, as a specification gives them."""
Recipe = Callable[[Path, ExitStack], Made]
"""Writes what a part is made of into a folder; what has to stay open for it, such as a server, goes onto the stack."""

OWN = ("counterfoil.", "counterfoil_lab.", "counterfoil_brightness:")  # not what else is installed
NAMES, WORDS = list(CLASSES), ["red boot", "blue bag", "hat"]
TINY = f"python:{FAKES}:TinyModel"
PLAIN: dict[str, Any] = {"classes": NAMES, "size": 16, "mean": 0, "std": 1}
SHORT: dict[str, Any] = {"inversion": "edit-friendly", "steps": 2, "self_replace": 0.5}
OWN_MODULE = """
import torch
from torch import nn

from tests.fakes import TinyAutoencoder


class Painter(nn.Module):
    latent_shape, size = (6,), 16

    def decode(self, latents):
        waves = torch.sin(torch.arange(6 * 768).float()).reshape(6, 768).to(latents.device)
        return torch.sigmoid(latents @ waves).reshape(-1, 3, 16, 16)


def coder():
    return TinyAutoencoder()
"""


def plain(name: str, **options: Any) -> Recipe:
    """A source that needs no file."""
    return lambda folder, stack: (name, options)


def save_as(kind: str, save: Callable[[Path], Any], file: str = "", **options: Any) -> Recipe:
    """A source that is named by a folder, or a file in it."""
    return lambda folder, stack: (f"{kind}:{save(folder / file)}", options)


def _csv(folder: Path) -> Path:
    rows = [f"{file.relative_to(folder)},{file.parent.name}" for file in sorted(photos(folder).rglob("*.png"))]
    (folder / "list.csv").write_text("path,label\n" + "\n".join(rows))
    return folder / "list.csv"


def _shards(folder: Path) -> Path:
    with tarfile.open(folder / "x-0.tar", "w") as archive:
        for number, file in enumerate(sorted(photos(folder / "photos").rglob("*.png"))):
            (folder / "label").write_text(file.parent.name)
            archive.add(file, f"{number}.png")
            archive.add(folder / "label", f"{number}.cls")
    return folder / "x-{0..0}.tar"


def _hfdata(folder: Path) -> Path:
    files = sorted(photos(folder / "photos").rglob("*.png"))
    columns = {"image": [str(file) for file in files], "label": [NAMES.index(file.parent.name) for file in files]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder / "saved")
    return folder / "saved"


def _mnist(folder: Path, stack: ExitStack) -> Made:
    for prefix in ("t10k", "train"):
        idx(folder / "MNIST" / "raw", prefix)
    return "torchvision-data:MNIST", {"root": str(folder)}


def _captions(folder: Path) -> Path:
    (folder / "captions.jsonl").write_text(json.dumps({"id": "1", "caption": "a dog"}))
    return folder / "captions.jsonl"


def _trunk(folder: Path) -> Path:
    transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, image_size=32, patch_size=8)).save_pretrained(folder)
    transformers.BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def _adm(case: str, **options: Any) -> Recipe:
    small = {"image_size": 16, "channel_mult": "1,2", "attention_resolutions": "8"}
    return save_as("adm", lambda folder: save_adm(folder, case, **small), flags={**ADMS[case], **small}, steps=3, **options)


def _style(folder: Path, stack: ExitStack) -> Made:
    for name, network in (("encoder", build_encoder()), ("decoder", build_decoder())):
        state = {key: value * (2**0.5 if value.dim() > 1 else 1) for key, value in named_weights(network.state_dict()).items()}
        if name == "decoder":
            state["28.bias"] += 0.5  # about mid-grey
        save_file(state, folder / f"{name}.safetensors")
    weights = {name: str(folder / f"{name}.safetensors") for name in ("encoder", "decoder")}
    return f"style:{photos(folder / 'styles')}", {**weights, "styles": 1}


def _mine(folder: Path, function: str) -> str:
    (folder / "mine.py").write_text(OWN_MODULE)
    return f"{folder / 'mine.py'}:{function}"


def _saved_pipeline(make: Callable[[], Any]) -> Callable[[Path], Path]:
    def save(folder: Path) -> Path:
        make().save_pretrained(folder)
        return folder

    return save


def _chat(endpoint: Endpoint) -> None:
    def answer(body: bytes) -> Any:
        picture = json.loads(body)["messages"][0]["content"][0]["image_url"]["url"]
        return {"choices": [{"message": {"role": "assistant", "content": f"a boot, {len(picture)}"}}]}

    endpoint.answer = answer  # type: ignore[method-assign]


def _serve_part(answers: Callable[[Endpoint], None], *, encrypted: bool = False) -> Recipe:
    """A part behind a server on the loopback address."""

    def recipe(folder: Path, stack: ExitStack) -> Made:
        endpoint = stack.enter_context(serve(certificate=_certificate(folder, stack) if encrypted else None))
        answers(endpoint)
        return endpoint.url, {"backoff": 0.0}

    return recipe


def _certificate(folder: Path, stack: ExitStack) -> tuple[Path, Path]:
    """A certificate for the loopback address that signs itself, and its key; this process believes it for a while."""
    signed, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=counterfoil-tests", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *names, "-out", signed, "-keyout", key], check=True, capture_output=True)
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(signed)
    stack.callback(lambda: os.environ.pop("SSL_CERT_FILE") if before is None else os.environ.update(SSL_CERT_FILE=before))
    return signed, key


def _openai(folder: Path, stack: ExitStack) -> Made:
    endpoint = stack.enter_context(serve())
    endpoint.answer = lambda body: reply("1. a photo of a cat on a sofa")  # type: ignore[method-assign]
    return "openai:tiny", {"base_url": endpoint.url.removesuffix("/predict")}


def _denoiser(**config: Any) -> Callable[[Path], Path]:
    return lambda folder: save_denoiser(folder, **config)


RECIPES: dict[tuple[str, str], Recipe] = {
    ("model", "timm"): save_as("timm", save_model),
    ("model", "torchvision"): plain("torchvision:mobilenet_v3_small", pretrained=False),
    ("model", "python"): plain(TINY),
    ("model", "hf"): save_as("hf", save_classifier),
    ("model", "openclip"): save_as("openclip", save_openclip, classes=WORDS),
    ("model", "onnx"): save_as("onnx", onnx_file, "m.onnx", **PLAIN),
    ("model", "torchscript"): save_as("torchscript", script_program, "m.pt", **PLAIN),
    ("model", "pt2"): save_as("pt2", export_program, "m.pt2", **PLAIN),
    ("model", "grouped"): plain(f"grouped:{TINY}", groups={"insect": ["ant", "bee"], "mammal": "2-3"}),
    ("model", "lab"): plain("lab:narrow"),
    ("model", "http"): _serve_part(lambda endpoint: None),
    ("model", "https"): _serve_part(lambda endpoint: None, encrypted=True),
    ("oracle", "clip"): save_as("clip", save_clip),
    ("oracle", "openclip"): save_as("openclip", save_openclip),
    ("oracle", "classifier"): plain(f"classifier:{TINY}"),
    ("oracle", "ensemble"): lambda folder, stack: ("ensemble:", {"members": [f"classifier:{TINY}", f"clip:{save_clip(folder)}"]}),
    ("oracle", "vlm"): save_as("vlm", save_vlm),
    ("oracle", "probe"): plain(f"probe:{own.part_name('encoder')}", head="knn", k=5),
    ("oracle", "human"): plain("human:"),
    ("oracle", "lab"): plain("lab:clip"),
    ("oracle", "daylight"): plain("daylight:"),
    ("encoder", "clip"): save_as("clip", save_clip),
    ("encoder", "openclip"): save_as("openclip", save_openclip),
    ("encoder", "torchscript"): save_as("torchscript", script_program, "m.pt", size=16, scale=1.0),
    ("encoder", "hf"): save_as("hf", _trunk),
    ("encoder", "timm"): save_as("timm", save_model),
    ("encoder", "lab"): plain("lab:clip"),
    ("chat", "vlm"): save_as("vlm", save_vlm, max_tokens=4),
    ("chat", "http"): _serve_part(_chat),
    ("chat", "https"): _serve_part(_chat, encrypted=True),
    ("generator", "autoencoder"): save_as("autoencoder", lambda folder: save_network(folder, "VQModel")),
    ("generator", "pixels"): plain("pixels:l2", epsilon=0.5),
    ("generator", "transforms"): plain("transforms:brightness,rotation,defocus-blur"),
    ("generator", "vqgan"): save_as("vqgan", save_run),
    ("generator", "diffusion"): save_as("diffusion", save_denoiser, steps=3),
    ("generator", "adm"): _adm("improved"),
    ("generator", "vdvae"): save_as("vdvae", save_checkpoint, "run"),
    ("generator", "stylegan_xl"): save_as("stylegan_xl", save_stylegan, "run", classes=["one", "two", "three"], steps=3),
    ("generator", "style"): _style,
    ("generator", "gan"): lambda folder, stack: (f"gan:{_mine(folder, 'Painter')}", {"steps": 3, "candidates": 2}),
    ("generator", "python"): lambda folder, stack: (f"python:{_mine(folder, 'coder')}", {}),
    ("generator", "reconstruct"): save_as("reconstruct:autoencoder", lambda folder: save_network(folder, "AutoencoderKL")),
    ("generator", "lab"): plain("lab:kl"),
    ("generator", "brightness"): plain("brightness:"),
    ("dataset", "folder"): save_as("folder", photos),
    ("dataset", "tensors"): save_as("tensors", lambda file: arrays(file, 12), "a.npz"),
    ("dataset", "csv"): save_as("csv", _csv),
    ("dataset", "webdataset"): save_as("webdataset", _shards),
    ("dataset", "hfdata"): save_as("hfdata", _hfdata),
    ("dataset", "torchvision-data"): _mnist,
    ("dataset", "subset"): save_as("subset:folder", photos, per_class=2, seed=1),
    **{("dataset", kind): save_as(kind, public.two_classes(kind)) for kind in public.LAYOUTS},
    ("dataset", "imagenet-v2"): save_as("imagenet-v2", public.version_two),
    ("dataset", "objectnet"): save_as("objectnet", public.objectnet),
    ("dataset", "imagenet-d"): save_as("imagenet-d", public.imagenet_d),
    ("dataset", "lab"): plain("lab:wardrobe", count=12),
    ("captioner", "blip"): save_as("blip", encoder_decoder, min_tokens=3, max_tokens=6),
    ("captioner", "hf"): save_as("hf", encoder_decoder, min_tokens=3, max_tokens=6),
    ("captioner", "captions"): save_as("captions", _captions),
    ("captioner", "lab"): plain("lab:blip"),
    ("rewriter", "lexicon"): plain("lexicon:"),
    ("rewriter", "llm"): save_as("llm", llama, max_tokens=8, batch=2),
    ("rewriter", "lab"): plain("lab:rewriter", proposals=1),
    ("rewriter", "openai"): _openai,
    ("editor", "p2p"): save_as("p2p", save_stable_diffusion, **SHORT),
    ("editor", "instruct"): save_as(
        "instruct", lambda folder: save_stable_diffusion(folder, "InstructPix2Pix", channels=8), steps=2, sweep=[1.2, 3.0]
    ),
    ("editor", "flowedit"): save_as("flowedit", _saved_pipeline(flux_1), steps=2, strength=1.0, size=32),
    ("editor", "lab"): plain("lab:diffusion", **SHORT),
    ("painter", "diffusers"): save_as("diffusers", save_stable_diffusion, steps=2, size=16),
    ("painter", "lab"): plain("lab:diffusion", steps=2),
    ("painter", "http"): _serve_part(answering),
    ("painter", "https"): _serve_part(answering, encrypted=True),
    **{(role, "python"): plain(own.part_name(role)) for role in own.PARTS},
}
"""By role and kind."""

VARIANTS: dict[tuple[str, str, str], Recipe] = {
    ("generator", "autoencoder", "KL"): save_as("autoencoder", lambda folder: save_network(folder, "AutoencoderKL")),
    ("generator", "autoencoder", "tiny"): save_as("autoencoder", lambda folder: save_network(folder, "AutoencoderTiny")),
    ("generator", "autoencoder", "code"): save_as("autoencoder", lambda folder: save_network(folder, "VQModel"), space="code"),
    ("generator", "vqgan", "code"): save_as("vqgan", save_run, space="code"),
    ("generator", "vqgan", "gumbel"): save_as("vqgan", lambda folder: save_run(folder, "GumbelVQ")),
    ("generator", "vqgan", "gumbel code"): save_as("vqgan", lambda folder: save_run(folder, "GumbelVQ"), space="code"),
    ("generator", "vqgan", "larger than in training"): save_as("vqgan", save_run, size=24),
    ("generator", "diffusion", "inverted"): save_as("diffusion", save_denoiser, steps=3, noising="inversion", steps_per_level=2),
    ("generator", "diffusion", "full gradient"): save_as("diffusion", save_denoiser, steps=3, gradient="full"),
    ("generator", "diffusion", "classes"): save_as(
        "diffusion", _denoiser(num_class_embeds=5, out_channels=6), steps=3, classes=list("abcde")
    ),
    ("generator", "adm", "guided"): _adm("guided", noising="inversion", steps_per_level=2),
    ("generator", "reconstruct", "code"): save_as(
        "reconstruct:autoencoder", lambda folder: save_network(folder, "VQModel"), space="code"
    ),
    ("generator", "stylegan_xl", "w+"): save_as(
        "stylegan_xl", save_stylegan, "run", classes=["one", "two", "three"], steps=3, space="w+"
    ),
    ("generator", "pixels", "linf"): plain("pixels:"),
    ("generator", "pixels", "no ball"): plain("pixels:linf", epsilon=None),
    ("generator", "pixels", "random start"): plain("pixels:l2", epsilon=1.0, random_start=True),
    ("generator", "transforms", "of every family"): plain("transforms:"),
    ("generator", "transforms", "three kinds"): plain("transforms:", kinds=3),
    ("generator", "transforms", "all at once"): plain("transforms:blur,hue", choose="all"),
    ("model", "hf", "mobilenet"): save_as("hf", lambda folder: save_classifier(folder, "mobilenet")),
    ("model", "hf", "CLIP"): save_as("hf", save_clip, classes=WORDS),
    ("model", "onnx", "three at a time"): save_as("onnx", lambda file: onnx_file(file, rows=3), "m.onnx", **PLAIN),
    ("model", "pt2", "three at a time"): save_as("pt2", lambda file: export_program(file, rows=3), "m.pt2", **PLAIN),
    ("model", "hf", "SigLIP"): save_as("hf", save_siglip, classes=WORDS),
    ("oracle", "clip", "SigLIP that abstains"): save_as("clip", save_siglip, threshold=0.4, below_threshold="abstain"),
    ("oracle", "vlm", "choice"): save_as("vlm", save_vlm, mode="choice", rotations=2, threshold=0.4, below_threshold="abstain"),
    ("editor", "p2p", "null-text"): save_as(
        "p2p", save_stable_diffusion, inversion="null-text", steps=2, self_replace=[0, 0.7], refinements=1, inner_steps=2
    ),
    ("editor", "p2p", "negative-prompt"): save_as("p2p", save_stable_diffusion, inversion="negative-prompt", steps=2),
    ("editor", "p2p", "ddim"): save_as("p2p", save_stable_diffusion, inversion="ddim", steps=2, refinements=1),
    ("editor", "flowedit", "Stable Diffusion 3"): save_as(
        "flowedit", _saved_pipeline(sd3), steps=2, strength=[0.5, 1.0], size=32
    ),
    ("editor", "instruct", "image to image"): save_as("instruct", save_stable_diffusion, steps=2, sweep=[0.5, 1.0]),
}
"""More of some kinds, in other settings."""


def list_sources() -> list[tuple[str, str]]:
    """Role and kind of every source that is registered, without importing any."""
    found = {(role, entry.name) for role in ROLES for entry in entry_points(group=f"counterfoil.{role}s") if _own(entry.value)}
    found |= {(role, "python") for role in ROLES}
    return sorted(found, key=lambda source: (ROLES.index(source[0]), source[1]))


def _own(value: str) -> bool:
    return value.startswith(OWN)
