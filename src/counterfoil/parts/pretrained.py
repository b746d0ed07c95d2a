"""Models and pipelines as transformers and diffusers save them: a folder, or a repository on the hub.

The libraries load them; weights come from safe files and fill the whole network. Where they do not, the libraries would
fill the rest with random numbers and carry on; here they are refused, and so is code that comes with weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.core.tables import BadJson, read_json
from counterfoil.parts import weights
from counterfoil.parts.contracts import Movable

CONFIG, INDEX = "config.json", "model_index.json"
DIFFUSERS_WEIGHTS = "diffusion_pytorch_model.safetensors"
Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")
_REPORTED = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # what does not fit is refused here, by name
_PURPOSES = {
    "AutoModelForImageClassification": "an image classifier",
    "AutoModelForImageTextToText": "one that answers questions about images",
}


class Pretrained:
    """A model's files in transformers' layout. `kind` is what errors call it: the word before the colon."""

    def __init__(self, kind: str, name: str, *, revision: str | None = None, example: str) -> None:
        if not name:
            raise BadPart(f"{kind}: name a local folder or a hub repository, as in {kind}:{example}")
        self.name = f"{kind}:{name}"
        self.folder = weights.local_folder(name)
        self.revision = revision
        if self.folder is not None and not (self.folder / CONFIG).is_file():
            raise BadPart(f"{self.name}: the folder has no config.json; save model and processor with save_pretrained")
        self._repository = "" if self.folder else name
        self.config = self._read_config()

    @property
    def place(self) -> str:
        """The folder or repository, as transformers takes it."""
        return self._repository or str(self.folder)

    @property
    def architectures(self) -> list[str]:
        """The classes the weights were saved from."""
        return [str(name) for name in self.config.get("architectures") or ()]

    def check_hash(self, sha256: str) -> None:
        """Raise BadWeights unless the weights, which have to be one file, have this SHA-256."""
        file = weights.find(self.folder) if self.folder else self._fetch(WEIGHT_FILES)
        if file.suffix == ".json":
            raise BadWeights(f"{self.name}: its weights are in several files, which no one hash describes; leave sha256 out")
        weights.check_hash(file, sha256)

    def model(self, loader: Any, *, dtype: torch.dtype = torch.float32) -> Any:
        """The model by one of transformers' automatic classes, complete."""
        with weights.loading(self.place, repository=self._repository, file=WEIGHT_FILES[0]):
            try:
                model, report = loader.from_pretrained(self.place, dtype=dtype, weights_only=True, **_REPORTED, **self._options())
            except ValueError as error:
                if "nrecognized" not in str(error):
                    raise
                wanted = _PURPOSES.get(loader.__name__, "of the kind that is needed")
                raise BadPart(f"{self.name}: a {self.config.get('model_type')} model is not {wanted}") from None
        hint = f"so they are not a trained {type(model).__name__}; choose a repository whose model was trained for this"
        _check_whole(report, self.name, hint, ("missing_keys", "mismatched_keys"))
        return model

    def processor(self, loader: Any, file: str) -> Any:
        """A tokenizer or processor by one of transformers' automatic classes; `file` is the one it needs."""
        with weights.loading(self.place, repository=self._repository, file=file):
            return loader.from_pretrained(self.place, **self._options())

    def _options(self) -> dict[str, Any]:
        # Left out, the library would ask on the terminal whether to run a repository's code.
        return {"trust_remote_code": False, **({"revision": self.revision} if self.revision else {})}

    def _fetch(self, names: Sequence[str]) -> Path:
        return weights.hub_file(self._repository, names, revision=self.revision)

    def _read_config(self) -> dict[str, Any]:
        from transformers import CONFIG_MAPPING

        config = read_config(self.folder / CONFIG if self.folder else self._fetch((CONFIG,)))
        kind = config.get("model_type")
        if kind not in CONFIG_MAPPING:
            own = "auto_map" in config
            cause = "it needs code of its own, which is never run" if own else "transformers does not know it"
            raise BadPart(f"{self.name}: its config.json names the model type {kind!r}; {cause}")
        return config


@dataclass(frozen=True)
class Checkpoint:
    """A configuration, and weights that are safe to read."""

    folder: Path
    config: dict[str, Any]
    weights: Path

    def load(self, sha256: str | None = None) -> Any:
        """The network in float32, every one of its weights from the file."""
        import diffusers

        weights.load_state(self.weights, sha256)  # a wrong hash or a broken file is named before the library sees it
        with weights.loading(self.weights):
            return load_network(getattr(diffusers, self.config["_class_name"]), self.folder, what=str(self.weights))


class Network(Movable):
    """A network of diffusers that is only asked: frozen, with the hash of the file it came from."""

    def __init__(self, network: Any, *, sha256: str = "") -> None:
        self.network = network.eval().requires_grad_(False)
        self.sha256 = sha256

    def provenance(self) -> dict[str, str]:
        library = f"diffusers {version('diffusers')}"
        return {"network": type(self.network).__name__, "weights": self.sha256, "library": library}


def open_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder in diffusers layout."""
    if not (folder / CONFIG).is_file():
        raise BadWeights(f"{folder}: no {CONFIG} in it; give a folder in diffusers layout, or subfolder= if it lies deeper")
    config = read_config(folder / CONFIG)
    if not (folder / DIFFUSERS_WEIGHTS).is_file():
        for other in sorted(folder.iterdir()):
            if other.suffix in weights.PICKLES:
                raise weights.pickle_refusal(other, DIFFUSERS_WEIGHTS)
        raise BadWeights(f"{folder}: no {DIFFUSERS_WEIGHTS} in it; weights are read from that one file, and from no pickle")
    return Checkpoint(folder, config, folder / DIFFUSERS_WEIGHTS)


def load_network(
    network: Any, folder: Path, *, dtype: torch.dtype = torch.float32, variant: str | None = None, what: str = ""
) -> Any:
    """A network of diffusers or transformers, frozen, every one of its weights from the file."""
    own = network.__module__.startswith("diffusers.models")  # transformers leaves out old keys by itself
    loaded, report = network.from_pretrained(
        str(folder),
        dtype=dtype,
        use_safetensors=True,  # never a pickle
        local_files_only=True,
        **_REPORTED,
        **({"low_cpu_mem_usage": False} if own else {}),  # otherwise it asks for accelerate; files of this size gain nothing
        **({"variant": variant} if variant is not None else {}),
    )
    # The library would fill them with random numbers, or leave them out.
    problems = ("missing_keys", "mismatched_keys", *(("unexpected_keys",) if own else ()))
    _check_whole(report, what or str(folder), "config.json and weights do not belong together", problems)
    if own and any(weight.dtype != dtype for weight in loaded.parameters()):
        loaded.to(dtype)  # older versions know the option by another name
    return loaded.eval().requires_grad_(False)


def open_pipeline(
    what: str, name: str, *, wanted: str, variant: str | None = None, revision: str | None = None
) -> tuple[Path, dict[str, tuple[str, str]]]:
    """The folder of a pipeline, and library and class of each of its components. `what` is the part, for errors: `p2p:NAME`."""
    from diffusers import DiffusionPipeline

    if not name:
        raise BadPart(f"{what} name a folder in diffusers layout or a hub repository, as in {what}CompVis/stable-diffusion-v1-4")
    folder = weights.local_folder(name)
    if folder is None:
        options = {key: value for key, value in (("variant", variant), ("revision", revision)) if value is not None}
        with weights.loading(what, repository=name, file=INDEX, wanted=wanted):
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
    with weights.loading(what, wanted=wanted):
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

    with weights.loading(folder):
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)


def own_size(pipeline: Any) -> int | None:
    """The side of the images that a pipeline's denoiser was trained on."""
    network = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    side = getattr(getattr(network, "config", None), "sample_size", None) or getattr(pipeline, "default_sample_size", None)
    return int(side) * int(pipeline.vae_scale_factor) if isinstance(side, int) else None


def read_config(path: Path) -> dict[str, Any]:
    """A configuration: one JSON object."""
    try:
        values = read_json(path)
    except BadJson as error:
        raise BadWeights(f"{error}; download it again") from None
    if not isinstance(values, dict):
        raise BadWeights(f"{path}: a configuration is a JSON object, got {type(values).__name__}; download it again")
    return values


def account_of(model: Any, name: str) -> dict[str, str]:
    """Provenance of a part made of a model of transformers: library, source and weights."""
    return {"library": f"transformers {version('transformers')}", "source": name, "weights": weights.fingerprint(model)}


_PROBLEMS = {"missing_keys": "lack", "mismatched_keys": "have another shape of", "unexpected_keys": "also have"}


def _check_whole(report: Mapping[str, Any], what: str, hint: str, kinds: Sequence[str]) -> None:
    """Raise BadWeights where a library's report on loading names weights that are missing, of another shape, or too many."""
    unfit = {key[0] for key in report["mismatched_keys"]}  # some versions list them as missing, too
    keys = [(kind, key) for kind in kinds for key in sorted(report[kind]) if kind != "missing_keys" or key not in unfit]
    if keys:
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        raise BadWeights(
            f"{what}: the weights {', '.join(f'{_PROBLEMS[kind]} {_name_key(key)}' for kind, key in keys[:3])}{more}, {hint}"
        )


def _name_key(key: Any) -> str:
    """A weight's name, with the two shapes where it has another than the network's."""
    if not isinstance(key, tuple | list):
        return str(key)
    name, *shapes = key
    return f"{name} ({' for '.join('×'.join(map(str, shape)) for shape in shapes)})"
