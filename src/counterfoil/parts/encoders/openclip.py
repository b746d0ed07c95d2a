"""Models of open_clip: an architecture with weights, a local folder, or a hub repository."""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart, BadWeights, UnknownName
from counterfoil.parts import hub, weights
from counterfoil.parts.contracts import Trait
from counterfoil.parts.models.preprocessing import Preprocessing, Resizing

_RESIZING: dict[str, Resizing] = {"shortest": "shorter", "longest": "longer", "squash": "squash"}


def load(name: str, *, sha256: str | None = None) -> OpenClipEncoder:
    """A model of open_clip: openclip:ViT-B-32/openai, openclip:FOLDER, or openclip:hf-hub:ORG/NAME."""
    import open_clip

    if not name:
        raise BadPart("openclip: name a model, as in openclip:ViT-B-32/openai")
    folder = hub.local_folder(name)
    settings: dict[str, Any] = {}
    if folder is not None:
        source, file = f"local-dir:{folder}", weights.find(folder)
        if not (folder / "open_clip_config.json").is_file():
            raise BadPart(f"openclip:{name}: the folder has no open_clip_config.json")
    elif name.startswith("hf-hub:"):
        repository = name.removeprefix("hf-hub:")
        hub.hub_file(repository, ("open_clip_config.json",))
        source = name
        file = hub.hub_file(repository, ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"))
    else:
        source, file, settings = _published(name)
    if sha256 is not None:
        weights.check_hash(file, sha256)
    with weights.loading(file), _quiet():
        model = open_clip.create_model(source, load_weights=False, pretrained_text=False, **settings)
        _fill(model, file)
        tokenizer = open_clip.get_tokenizer(source)
    return OpenClipEncoder(model, tokenizer, name=name)


class OpenClipEncoder:
    """A model of open_clip with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str) -> None:
        self.model = model
        self.model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.preprocessing = _preprocessing(self.model.visual.preprocess_cfg)
        self.name = name
        self.pairwise = getattr(model, "logit_bias", None) is not None
        self._device = torch.device("cpu")

    @property
    def size(self) -> int | None:
        """Side of the square images it sees, or None for another shape."""
        return self.preprocessing.side

    def embed_images(self, images: Tensor) -> Tensor:
        """Embeddings of pictures.  # (N, 3, H, W) → (N, D)"""
        embedding: Tensor = self.model.encode_image(self.preprocessing(images))
        return embedding

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of texts.  # → (len(texts), D)"""
        embedding: Tensor = self.model.encode_text(self.tokenizer(list(texts)).to(self._device))
        return embedding

    def logits(self, similarity: Tensor) -> Tensor:
        """Similarities on the scale the model was trained at.  # (N, K)"""
        scaled: Tensor = similarity * self.model.logit_scale.exp()
        return scaled + self.model.logit_bias if self.pairwise else scaled

    def to(self, device: torch.device | str) -> OpenClipEncoder:
        """The same encoder, moved to a device."""
        self.model.to(device)
        self._device = torch.device(device)
        return self

    def describe(self) -> list[Trait]:
        """The preprocessing."""
        return self.preprocessing.describe()

    def provenance(self) -> dict[str, str]:
        """Library, source and weights."""
        import open_clip

        library = f"open_clip {open_clip.__version__}"
        return {"library": library, "source": self.name, "weights": weights.fingerprint(self.model)}


def _published(name: str) -> tuple[str, Path, dict[str, Any]]:
    """Architecture, weight file and settings of `ARCHITECTURE/WEIGHTS`."""
    import open_clip

    architecture, _, wanted = name.partition("/")
    known = open_clip.list_models()
    if architecture not in known:
        near = difflib.get_close_matches(architecture, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownName(f"no open_clip model or folder named {name!r}.{hint} open_clip.list_models() has all {len(known)}")
    if Path(wanted).expanduser().is_file():
        return architecture, Path(wanted).expanduser(), {}
    published = open_clip.get_pretrained_cfg(architecture, wanted) if wanted else {}
    if not published:
        tags = open_clip.list_pretrained_tags_by_model(architecture)
        raise UnknownName(
            f"no weights or file {wanted!r} for the open_clip model {architecture}; there are {', '.join(tags) or 'none'}"
        )
    # `hf_hub` is the repository's two names, and perhaps a file's.
    repository = "/".join(str(published["hf_hub"]).split("/")[:2]) if published.get("hf_hub") else str(published.get("url"))
    named = str(published.get("hf_hub") or "").removeprefix(repository).strip("/") or "open_clip_model.safetensors"
    with hub.hub_access(repository, f"{named}, the weights of {name},"):
        file = Path(open_clip.download_pretrained(published))
    keys = ("mean", "std", "interpolation", "resize_mode")
    # Weights trained with the quick GELU are wrong without it; open_clip itself only warns.
    quick = bool(published.get("quick_gelu")) or bool(open_clip.get_model_config(architecture).get("quick_gelu"))
    overrides = {key: published[key] for key in keys if published.get(key) is not None}
    return architecture, file, {"force_quick_gelu": quick, "force_preprocess_cfg": overrides}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Loading without open_clip's warning that the weights are random: they are filled in here."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def _fill(model: nn.Module, file: Path) -> None:
    """Load the weights; open_clip's own loader knows the other layouts in which they are published."""
    from open_clip.factory import load_checkpoint

    try:
        load_checkpoint(model, str(file), weights_only=True)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        if "state_dict" not in text:
            raise
        raise BadWeights(f"{file}: the weights are of another architecture: {text[:240]}") from None


def _preprocessing(settings: dict[str, Any]) -> Preprocessing:
    """What open_clip's evaluation transform does."""
    size = settings["size"]
    height, width = (size, size) if isinstance(size, int) else size
    fill = settings.get("fill_color", 0) / 255
    return Preprocessing(
        size=(height, width),
        resizing=_RESIZING[settings["resize_mode"]],
        interpolation="bilinear" if settings["interpolation"] == "bilinear" else "bicubic",
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        fill=(fill, fill, fill),
        sized_by="the weights",
        normalised_by="the weights",
    )
