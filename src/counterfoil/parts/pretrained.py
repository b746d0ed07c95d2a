"""Loads what transformers saves: a folder in its layout, or a repository on the hub.

Nothing in a repository is run: models whose code comes with their weights are refused. Weights that do not fill the
whole model are refused too, where transformers itself would fill the rest with random numbers and go on.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from counterfoil.core.errors import BadPart, BadWeights, one_line
from counterfoil.parts import weights

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")


class Pretrained:
    """A model's files in transformers' layout. `kind` is what errors call it: the word before the colon."""

    def __init__(self, kind: str, name: str, *, revision: str | None = None, example: str) -> None:
        if not name:
            raise BadPart(f"{kind}: name a local folder or a hub repository, as in {kind}:{example}")
        self.name = f"{kind}:{name}"
        self.folder = weights.local_folder(name)
        self.revision = revision
        if self.folder is not None and not (self.folder / "config.json").is_file():
            raise BadPart(f"{self.name}: the folder has no config.json; save model and processor with save_pretrained")
        self._repository = name
        self.config = self._read_config()

    @property
    def place(self) -> str:
        """The folder or repository, as transformers takes it."""
        return self._repository if self.folder is None else str(self.folder)

    @property
    def architectures(self) -> list[str]:
        """The classes the weights were saved from."""
        return [str(name) for name in self.config.get("architectures") or ()]

    def check_hash(self, sha256: str) -> None:
        """Raise BadWeights unless the weights, which have to be one file, have this SHA-256."""
        file = (
            weights.find(self.folder) if self.folder else weights.from_hub(self._repository, WEIGHT_FILES, revision=self.revision)
        )
        if file.suffix == ".json":
            raise BadWeights(f"{self.name}: its weights are in several files, which no one hash describes; leave sha256 out")
        weights.check_hash(file, sha256)

    def model(self, loader: Any, *, dtype: torch.dtype = torch.float32) -> Any:
        """The model by one of transformers' automatic classes, complete."""
        with self._reading(WEIGHT_FILES[0]):
            try:
                model, report = loader.from_pretrained(
                    self.place,
                    dtype=dtype,
                    weights_only=True,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # they are refused below, by name
                    **self._options(),
                )
            except ValueError as error:
                if "nrecognized" not in str(error):
                    raise
                raise BadPart(f"{self.name}: a {self.config.get('model_type')} model is not {_wanted(loader)}") from None
        self._check_complete(report, type(model).__name__)
        return model

    def _check_complete(self, report: Mapping[str, Any], kind: str) -> None:
        """Raise BadWeights if transformers had to fill in anything."""
        unfit = {key: f"{key} of another shape ({_sizes(*shapes)})" for key, *shapes in report["mismatched_keys"]}
        problems = [f"lack {key}" for key in sorted(report["missing_keys"]) if key not in unfit] + [
            f"have {text}" for _, text in sorted(unfit.items())
        ]
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise BadWeights(
                f"{self.name}: the weights {', '.join(problems[:3])}{more}, so they are not a trained {kind}; "
                "choose a repository whose model was trained for this"
            )

    def processor(self, loader: Any, file: str) -> Any:
        """A tokenizer or processor by one of transformers' automatic classes; `file` is the one it needs."""
        with self._reading(file):
            return loader.from_pretrained(self.place, **self._options())

    def _options(self) -> dict[str, Any]:
        # Left out, the library would ask on the terminal whether to run a repository's code.
        return {"trust_remote_code": False, **({"revision": self.revision} if self.revision else {})}

    def _read_config(self) -> dict[str, Any]:
        from transformers import CONFIG_MAPPING

        file = (
            self.folder / "config.json"
            if self.folder
            else weights.from_hub(self._repository, ("config.json",), revision=self.revision)
        )
        try:
            config = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadWeights(f"{file}: cannot be read as JSON ({one_line(error)}); download it again") from None
        kind = config.get("model_type") if isinstance(config, dict) else None
        if kind not in CONFIG_MAPPING:
            own = isinstance(config, dict) and "auto_map" in config
            cause = "it needs code of its own, which is never run" if own else "transformers does not know it"
            raise BadPart(f"{self.name}: its config.json names the model type {kind!r}; {cause}")
        return dict(config)

    @contextlib.contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        reading = weights.loading(self.folder) if self.folder else weights.hub_access(self._repository, file)
        with reading, quiet():
            yield


def dtype_named(name: str, *, what: str) -> torch.dtype:
    """The number format that an option names; `what` is the part, for errors."""
    if name not in DTYPES:
        raise BadPart(f"{what}: dtype is one of {', '.join(DTYPES)}, got {name!r}")
    return DTYPES[name]


def account_of(model: Any, name: str) -> dict[str, str]:
    """What a part made of a model of transformers says of itself: library, source and weights."""
    import transformers

    return {"library": f"transformers {transformers.__version__}", "source": name, "weights": weights.fingerprint(model)}


def chat_inputs(processor: Any, image: Image.Image, question: str) -> Any:
    """What a model that chats is given for a picture and a question."""
    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Loading without the library's progress bars and reports; errors still come through."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _wanted(loader: Any) -> str:
    kinds = {
        "AutoModelForImageClassification": "a classifier of pictures",
        "AutoModelForImageTextToText": "one that answers questions about pictures",
    }
    return kinds.get(loader.__name__, "of the kind that is needed")


def _sizes(*shapes: Any) -> str:
    return " for ".join("×".join(map(str, shape)) for shape in shapes)
