"""Load pipelines of diffusers: a folder here or on the hub, safetensors only, every network complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.core.tables import BadJson, read_json
from counterfoil.parts import diffusers_loading, pretrained, weights
from counterfoil.parts.diffusers_loading import INDEX

EXAMPLE = "CompVis/stable-diffusion-v1-4"


def open_pipeline(
    what: str, name: str, *, wanted: str, variant: str | None = None, revision: str | None = None
) -> tuple[Path, dict[str, tuple[str, str]]]:
    """The folder of a pipeline, and library and class of each of its components. `what` is the part, for errors: `p2p:NAME`."""
    if not name:
        raise BadPart(f"{what} name a folder in diffusers layout or a hub repository, as in {what}{EXAMPLE}")
    folder = weights.local_folder(name)
    if folder is None:
        from diffusers import DiffusionPipeline

        with diffusers_loading.loading(what, None, wanted=wanted):
            options = {key: value for key, value in (("variant", variant), ("revision", revision)) if value is not None}
            folder = Path(DiffusionPipeline.download(name, use_safetensors=True, **options))
    try:
        index = read_json(folder / INDEX)
    except BadJson:
        raise BadWeights(f"{what}: the folder has no {INDEX} that can be read; save the pipeline with save_pretrained") from None
    rows = index.items() if isinstance(index, dict) else ()
    pairs = {part: value for part, value in rows if isinstance(value, list) and len(value) == 2 and all(value)}
    return folder, {part: (str(library), str(kind)) for part, (library, kind) in pairs.items()}


def load_pipeline(
    loader: Any,
    what: str,
    name: str,
    *,
    wanted: str,
    dtype: torch.dtype,
    variant: str | None = None,
    revision: str | None = None,
    without: Sequence[str] = (),
) -> Any:
    """The pipeline in a folder or hub repository, frozen; `without` names components that are left out."""
    folder, components = open_pipeline(what, name, wanted=wanted, variant=variant, revision=revision)
    given: dict[str, Any] = dict.fromkeys(without)
    with diffusers_loading.loading(what, folder, wanted=wanted):
        for part, (library, kind) in components.items():
            network = None if part in without else network_class(library, kind)
            if network is not None:
                given[part] = load_network(network, folder / part, dtype=dtype, variant=variant)
        pipeline = loader.from_pretrained(str(folder), use_safetensors=True, local_files_only=True, **given)
    return pipeline


def network_class(library: str, kind: str) -> Any:
    """The class of a component if it is a network, else None."""
    import diffusers

    home = import_module(library) if library in ("diffusers", "transformers") else getattr(diffusers.pipelines, library, None)
    found = getattr(home, kind, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def load_network(network: Any, folder: Path, *, dtype: torch.dtype = torch.float32, variant: str | None = None) -> Any:
    """A network of diffusers or transformers, frozen, every one of its weights from the file."""
    loaded, report = network.from_pretrained(
        str(folder),
        dtype=dtype,
        use_safetensors=True,  # never a pickle
        local_files_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are refused below, by name
        **({"variant": variant} if variant is not None else {}),
    )
    own = network.__module__.startswith("diffusers.models")  # transformers leaves out old keys by itself
    _check_complete(report, folder, ("missing_keys", "mismatched_keys", *(("unexpected_keys",) if own else ())))
    if own and any(weight.dtype != dtype for weight in loaded.parameters()):
        loaded.to(dtype)  # older versions know the option by another name
    return loaded.eval().requires_grad_(False)


def _check_complete(report: Mapping[str, Any], folder: Path, problems: Sequence[str]) -> None:
    """Refuse what the library would fill with random numbers, or leave out."""
    for problem in problems:
        keys = sorted(_describe(key) for key in report[problem])
        if keys:
            raise BadWeights(
                f"{folder}: {len(keys)} {problem.replace('_', ' ')}, {keys[0]} among them; "
                "config.json and weights do not belong together"
            )


def _describe(key: Any) -> str:
    """A weight's name, with the two shapes where it has another than the network's."""
    if not isinstance(key, tuple):
        return str(key)
    name, *shapes = key
    return f"{name} ({' for '.join('×'.join(map(str, shape)) for shape in shapes)})"


def load_tokenizer(folder: Path) -> Any:
    """A pipeline's tokenizer."""
    from transformers import AutoTokenizer

    with weights.loading(folder), pretrained.quiet():
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def read_config(path: Path) -> dict[str, Any]:
    """A configuration: one JSON object."""
    try:
        values = read_json(path)
    except BadJson as error:
        raise BadWeights(f"{error}; download it again") from None
    if not isinstance(values, dict):
        raise BadWeights(f"{path}: a configuration is a JSON object, got {type(values).__name__}; download it again")
    return values


def own_size(pipeline: Any) -> int | None:
    """The side of the images that a pipeline's denoiser was trained on."""
    network = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    side = getattr(getattr(network, "config", None), "sample_size", None)
    return int(side) * int(pipeline.vae_scale_factor) if isinstance(side, int) else None
