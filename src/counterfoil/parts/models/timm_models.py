"""Models from timm: by name, from the hub, or from a local folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from counterfoil.core.errors import BadPart, BadWeights, UnknownName, did_you_mean
from counterfoil.parts import imagenet, labels
from counterfoil.parts import weights as weight_files
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.preprocessing import Preprocessing, PublishedOptions, Resizing

_RESIZING: Mapping[str, Resizing] = {"center": "shorter", "squash": "squash", "border": "longer"}


@dataclass(frozen=True)
class TimmOptions(PublishedOptions):
    in_chans: int | None = None


def timm_model(name: str, options: TimmOptions) -> ModuleModel:
    """A model from timm: timm:resnet50.a1_in1k, timm:FOLDER, or timm:ORGANISATION/NAME on the hub.

    A folder is in timm's own layout, config.json next to the weights. `weights` is a local file to load instead of the
    published ones, `sha256` the hash of whichever is loaded. `classes` are the names of the outputs, or a file with one per
    line; with `weights`, or with `pretrained: false`, they also set how many outputs there are. `crop: none` shows the model
    the whole image instead of the crop that its evaluation transform takes.
    """
    import timm

    source, given = _source(name), None if options.classes is None else labels.read_names(options.classes)
    weights, own = options.weights, options.weights is not None or not options.pretrained
    module = _create(source, pretrained=not own, num_classes=len(given) if given and own else None, in_chans=options.in_chans)
    if weights is not None:
        weight_files.load_into(module, weight_files.load_state(weights, options.sha256), what=weights)
    elif options.sha256 is not None and not own:
        weight_files.check_hash(_weight_file(module, source), options.sha256)
    names, aliases = _names(module, given, f"timm:{name}")
    return ModuleModel(
        module,
        names,
        preprocessing=_preprocessing(module, f"timm:{name}").with_crop(options.crop),
        aliases=aliases,
        origin={"library": f"timm {timm.__version__}", "source": source},
    )


def _source(name: str) -> str:
    """The name as timm takes it, after a check that it means something."""
    from timm.models import is_model, list_models, list_pretrained

    if not name:
        raise BadPart("timm: name a model, as in timm:resnet50")
    folder = weight_files.local_folder(name)
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise BadPart(f"timm:{name}: the folder has no config.json; save the model with timm's save_for_hf")
        return f"local-dir:{folder}"
    if name.startswith(("local-dir:", "hf-hub:")):
        return name
    if "/" in name:
        return f"hf-hub:{name}"
    architecture, _, tag = name.partition(".")
    if not is_model(architecture):
        hint = did_you_mean(architecture, list_models())
        raise UnknownName(f"no timm model or folder named {name!r}.{hint} timm.list_models() has all {len(list_models())}")
    if tag and name not in list_pretrained(f"{architecture}*"):
        tags = [known.partition(".")[2] for known in list_pretrained(f"{architecture}.*")]
        raise UnknownName(f"no weights {tag!r} for the timm model {architecture!r}; there are {', '.join(tags) or 'none'}")
    return name


def _create(source: str, *, pretrained: bool, **options: Any) -> nn.Module:
    """The model as timm makes it, which knows the older layouts of its checkpoints."""
    import timm
    from timm.models import get_pretrained_cfg

    kind, _, place = source.rpartition(":")
    what, repository, file = f"timm:{source}", "", "model.safetensors"
    if kind == "local-dir":
        what = str(weight_files.find(place)) if pretrained else place
    elif kind == "hf-hub":
        repository, file = place.partition("@")[0], "config.json"
    elif pretrained:
        known = get_pretrained_cfg(source)
        if known is None or not known.has_weights:
            raise BadWeights(f"{what}: timm has no weights for it; give weights: FILE, or pretrained: false for random ones")
        repository = known.hf_hub_id or ""
    with weight_files.loading(what, repository=repository, file=file):
        module: nn.Module = timm.create_model(source, pretrained=pretrained, **options)
    return module


def _weight_file(module: nn.Module, source: str) -> Path:
    """The file that timm has read the weights from."""
    settings: Mapping[str, Any] = module.pretrained_cfg  # type: ignore[assignment]
    kind, _, place = source.rpartition(":")
    if kind == "local-dir":
        return weight_files.find(place)
    repository, _, revision = (place if kind == "hf-hub" else str(settings.get("hf_hub_id"))).partition("@")
    named = settings.get("hf_hub_filename")
    names = (str(Path(named).with_suffix(".safetensors")), named) if named else ("model.safetensors", "pytorch_model.bin")
    return weight_files.hub_file(repository, names, revision=revision or None)


def _names(module: nn.Module, given: list[str] | None, what: str) -> tuple[list[str], labels.Aliases | None]:
    """The names of a model's outputs: those given, those in its configuration, or ImageNet's."""
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    outputs = int(module.num_classes)  # type: ignore[arg-type]
    if outputs == 0:
        raise BadPart(f"{what}: has no classifier, only features; choose weights that were trained on classes")
    settings: Mapping[str, Any] = getattr(module, "pretrained_cfg", {})
    listed, described = settings.get("label_names"), settings.get("label_descriptions") or {}
    if isinstance(listed, Mapping):  # by number
        listed = [listed[number] for number in sorted(listed, key=int)]
    subset = infer_imagenet_subset(module)
    aliases: labels.Aliases | None = None
    if given is not None:
        names = given
    elif listed:
        names, aliases = [described.get(name, name) for name in listed], [(name,) for name in listed]
    elif subset == "imagenet-1k":
        names, aliases = imagenet.names_and_aliases()
    elif subset is not None:
        info = ImageNetInfo(subset)
        words, ids = list(info.label_descriptions()), list(info.label_names())
        shared = {word for word, times in Counter(words).items() if times > 1}
        names = [f"{word} ({name})" if word in shared else word for word, name in zip(words, ids, strict=True)]
        aliases = [(name, word, *labels.split(word)) for word, name in zip(words, ids, strict=True)]
    else:
        raise BadPart(f"{what}: {outputs} outputs without names; give classes: a list, or a file with one name per line")
    labels.check_outputs(names, outputs, what)
    return names, aliases


def _preprocessing(module: nn.Module, what: str) -> Preprocessing:
    """The preprocessing of timm's evaluation transform for this model."""
    from timm.data.config import resolve_model_data_config

    settings = resolve_model_data_config(module)
    configured, height, width = settings["input_size"]
    channels = _channels(module, configured)
    if channels not in (1, 3):
        raise BadPart(f"{what}: takes {channels} channels; images have three, or one when turned grey")
    mean, std = (_fit_channels(settings[name], channels) for name in ("mean", "std"))
    resizing = _RESIZING[settings["crop_mode"]]
    oblong = resizing == "shorter" and height != width  # here timm leaves the filter at its default
    return Preprocessing(
        size=(height, width),
        resize=(floor(height / settings["crop_pct"]), floor(width / settings["crop_pct"])),
        resizing=resizing,
        interpolation="bilinear" if oblong else settings["interpolation"],
        mean=mean,
        std=std,
        fill=tuple(round(255 * value) / 255 for value in mean),
        grey=channels == 1,
        sized_by="the weights",
        normalised_by="the weights",
    )


def _channels(module: nn.Module, configured: int) -> int:
    """The channels a model takes; its first layer knows better than a configuration that was not kept in step."""
    first: Any = getattr(module, "pretrained_cfg", {}).get("first_conv")
    parameters: Mapping[str, Tensor] = dict(module.named_parameters())
    weight = parameters.get(f"{first[0] if isinstance(first, list | tuple) else first}.weight")
    return int(weight.shape[1]) if weight is not None and weight.ndim == 4 else configured


def _fit_channels(values: Sequence[float], channels: int) -> tuple[float, ...]:
    return tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels
