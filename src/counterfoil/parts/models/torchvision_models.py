"""Models from torchvision, with the preprocessing and class names of their weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn

from counterfoil.core.errors import BadPart, UnknownName, did_you_mean
from counterfoil.parts import labels
from counterfoil.parts import weights as weight_files
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import Preprocessing, PublishedOptions

_DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)$")  # names that torch no longer allows


def torchvision_model(name: str, options: PublishedOptions) -> ModuleModel:
    """A model from torchvision: torchvision:resnet50, or torchvision:resnet50/IMAGENET1K_V1 for other weights.

    `weights` is a local file to load instead of the published ones, `sha256` the hash of whichever is loaded. `classes` are
    the names of the outputs, or a file with one per line; with `weights`, or with `pretrained: false`, they also set how many
    outputs there are. Preprocessing is that of the published weights; `crop: none` leaves their crop out.
    """
    import torchvision

    architecture, _, version = name.partition("/")
    builder, published = _find(architecture, version)
    preprocessing = _preprocessing(published, f"torchvision:{name}").with_crop(options.crop)
    categories, aliases = labels.recognise(published.meta["categories"])
    given = None if options.classes is None else labels.read_names(options.classes)
    names, weights = given or categories, options.weights
    if weights is None and options.pretrained:
        labels.check_outputs(names, len(categories), f"torchvision:{name}")
        module = _load_published(builder, published, options.sha256)
    else:
        module = builder(num_classes=len(names), **_settings(architecture, published))
    if weights is not None:
        state = weight_files.load_state(weights, options.sha256)
        state = {_DENSENET.sub(r"\1\2", key): value for key, value in state.items()} if "densenet" in architecture else state
        weight_files.load_into(module, state, what=weights)
    return ModuleModel(
        module,
        names,
        preprocessing=preprocessing,
        aliases=aliases if given is None else None,
        origin={"library": f"torchvision {torchvision.__version__}", "source": f"{architecture}/{published.name}"},
    )


def _find(architecture: str, version: str) -> tuple[Callable[..., nn.Module], Any]:
    """The function that builds a model, and the published weights of that version."""
    from torchvision import models

    if not architecture:
        raise BadPart("torchvision: name a model, as in torchvision:resnet50")
    known = models.list_models(models)
    if architecture not in known:
        hint = did_you_mean(architecture, known)
        raise UnknownName(f"no torchvision classifier named {architecture!r}.{hint} torchvision.models.list_models() has all")
    versions = models.get_model_weights(architecture)
    version = version or "DEFAULT"
    if version not in versions.__members__:
        raise UnknownName(f"no weights {version!r} for torchvision's {architecture}; there are {', '.join(versions.__members__)}")
    return models.get_model_builder(architecture), versions[version]


def _settings(architecture: str, published: Any) -> dict[str, Any]:
    """Further arguments that the library's builder sets for published weights."""
    if architecture in ("googlenet", "inception_v3"):
        return {"transform_input": True, "aux_logits": True, "init_weights": False}
    if architecture.startswith("vit_"):
        return {"image_size": published.meta["min_size"][0]}
    if architecture.startswith("maxvit"):
        return {"input_size": published.meta["min_size"]}
    return {}


def _preprocessing(published: Any, what: str) -> Preprocessing:
    """The preprocessing of the weights' own transform."""
    settings = published.transforms()
    if not all(hasattr(settings, name) for name in ("crop_size", "resize_size", "mean", "std", "interpolation")):
        raise BadPart(f"{what}: its transform is {type(settings).__name__}, not that of an image classifier")
    crop, resize = (tuple(getattr(settings, name)) * 2 for name in ("crop_size", "resize_size"))
    return Preprocessing(
        size=crop[:2],
        resize=resize[:2],
        interpolation=settings.interpolation.value,
        antialias=bool(settings.antialias),
        mean=tuple(settings.mean),
        std=tuple(settings.std),
        sized_by="the weights",
        normalised_by="the weights",
    )


def _load_published(builder: Callable[..., nn.Module], published: Any, sha256: str | None) -> nn.Module:
    """The model with published weights, from torch's cache or downloaded into it."""
    name = Path(urlparse(published.url).path).name
    begins = re.search(r"-([0-9a-f]{8,})\.", name)  # torchvision writes the beginning of the hash into the name
    file = weight_files.download(published.url, Path(torch.hub.get_dir()) / "checkpoints" / name, begins and begins[1])
    if sha256 is not None:
        weight_files.check_hash(file, sha256)
    with weight_files.loading(file):
        return builder(weights=published, progress=False)
