"""Load pipelines of diffusers: a folder here or on the hub, safetensors only, every network complete."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.core.tables import BadJson, read_json
from counterfoil.parts import hub, weights
from counterfoil.parts.hub import INDEX
from counterfoil.parts.pretrained import load_network

EXAMPLE = "CompVis/stable-diffusion-v1-4"


def open_pipeline(
    what: str, name: str, *, wanted: str, variant: str | None = None, revision: str | None = None
) -> tuple[Path, dict[str, tuple[str, str]]]:
    """The folder of a pipeline, and library and class of each of its components. `what` is the part, for errors: `p2p:NAME`."""
    if not name:
        raise BadPart(f"{what} name a folder in diffusers layout or a hub repository, as in {what}{EXAMPLE}")
    folder = hub.local_folder(name)
    if folder is None:
        from diffusers import DiffusionPipeline

        with hub.loading_pipeline(what, None, wanted=wanted):
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
    with hub.loading_pipeline(what, folder, wanted=wanted):
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


def load_tokenizer(folder: Path) -> Any:
    """A pipeline's tokenizer."""
    from transformers import AutoTokenizer

    with weights.loading(folder), hub.quiet():
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def own_size(pipeline: Any) -> int | None:
    """The side of the images that a pipeline's denoiser was trained on."""
    network = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    side = getattr(getattr(network, "config", None), "sample_size", None)
    return int(side) * int(pipeline.vae_scale_factor) if isinstance(side, int) else None
