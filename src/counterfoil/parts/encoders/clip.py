"""CLIP and SigLIP from transformers, and the models of open_clip; images compared with the classes' names in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.core.errors import BadPart, LabelMismatch, UnknownName, did_you_mean
from counterfoil.parts import labels as names
from counterfoil.parts import weights
from counterfoil.parts.contracts import Encoder, Movable, Trait
from counterfoil.parts.models.preprocessing import Preprocessing, Resizing, from_processor
from counterfoil.parts.pretrained import Pretrained, account_of

EXAMPLE = "openai/clip-vit-base-patch32"
PAPER_TEMPLATE = "an image of {class}"
"""The prompt of the paper on foundation-model-oriented robustness."""

TEXTS_AT_ONCE = 64
_RESIZING: dict[str, Resizing] = {"shortest": "shorter", "longest": "longer", "squash": "squash"}


@dataclass(frozen=True)
class OpenClipEncoderOptions:
    sha256: str | None = None


@dataclass(frozen=True)
class EncoderOptions(OpenClipEncoderOptions):
    revision: str | None = None


def load(name: str, options: EncoderOptions) -> TransformersEncoder:
    """CLIP or SigLIP from transformers: clip:FOLDER, or clip:openai/clip-vit-base-patch32 from the hub."""
    return open_encoder(Pretrained("clip", name, revision=options.revision, example=EXAMPLE), sha256=options.sha256)


def open_encoder(source: Pretrained, *, sha256: str | None = None) -> TransformersEncoder:
    """The encoder whose files are in `source`."""
    import transformers

    if sha256 is not None:
        source.check_hash(sha256)
    model = source.model(transformers.AutoModel)
    if not all(hasattr(model, needed) for needed in ("get_image_features", "get_text_features", "logit_scale")):
        raise BadPart(f"{source.name}: holds a {type(model).__name__}, which does not compare images with words")
    tokenizer = source.processor(transformers.AutoTokenizer, "tokenizer.json")
    processor = source.processor(transformers.AutoImageProcessor, "preprocessor_config.json")
    return TransformersEncoder(model, tokenizer, from_processor(processor, what=source.name), name=source.place)


class ImageEncoder(Movable):
    """A network that embeds images, with its preprocessing."""

    pairwise = False
    preprocessing: Preprocessing

    @property
    def size(self) -> int | None:
        """Side of the square images it sees, or None for another shape."""
        return self.preprocessing.side

    def describe(self) -> list[Trait]:
        return self.preprocessing.describe()


class ContrastiveEncoder(ImageEncoder):
    """A model that embeds images and texts into one space, with its tokenizer and preprocessing."""

    def __init__(self, model: Any, tokenizer: Any, preprocessing: Preprocessing, *, name: str) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        self.name = name
        self.pairwise = getattr(model, "logit_bias", None) is not None

    def logits(self, similarity: Tensor) -> Tensor:
        """Similarities on the scale the model was trained at.  # (N, K)"""
        scaled: Tensor = similarity * self.model.logit_scale.exp()
        return scaled + self.model.logit_bias if self.pairwise else scaled


class TransformersEncoder(ContrastiveEncoder):
    """A CLIP-like model of transformers."""

    def embed_images(self, images: Tensor) -> Tensor:
        return _pool(self.model.get_image_features(pixel_values=self.preprocessing(images)))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        # SigLIP was trained on texts filled up to one length, and sees the filling; CLIP stops at the end of the text.
        padding = "max_length" if str(self.model.config.model_type).startswith("siglip") else "longest"
        longest = int(self.model.config.text_config.max_position_embeddings)
        tokens = self.tokenizer(list(texts), padding=padding, truncation=True, max_length=longest, return_tensors="pt")
        accepted = {key: tokens[key].to(self.model.device) for key in ("input_ids", "attention_mask") if key in tokens}
        return _pool(self.model.get_text_features(**accepted))

    def provenance(self) -> dict[str, str]:
        return account_of(self.model, self.name)


def _pool(output: Any) -> Tensor:
    """The embedding in what `get_…_features` gives: a tensor, or since version 5 an output with one in it."""
    embedding: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return embedding


def load_openclip(name: str, options: OpenClipEncoderOptions) -> OpenClipEncoder:
    """A model of open_clip: openclip:ViT-B-32/openai, openclip:FOLDER, or openclip:hf-hub:ORG/NAME."""
    import open_clip

    if not name:
        raise BadPart("openclip: name a model, as in openclip:ViT-B-32/openai")
    folder, settings = weights.local_folder(name), dict[str, Any]()
    if folder is not None:
        source, file = f"local-dir:{folder}", weights.find(folder)
        if not (folder / "open_clip_config.json").is_file():
            raise BadPart(f"openclip:{name}: the folder has no open_clip_config.json")
    elif name.startswith("hf-hub:"):
        source, repository = name, name.removeprefix("hf-hub:")
        weights.hub_file(repository, ("open_clip_config.json",))
        file = weights.hub_file(repository, ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"))
    else:
        source, file, settings = _find_published(name)
    if options.sha256 is not None:
        weights.check_hash(file, options.sha256)
    with weights.loading(file):
        model = open_clip.create_model(source, pretrained_text=False, require_pretrained=True, **settings)
        tokenizer = open_clip.get_tokenizer(source)
    return OpenClipEncoder(model, tokenizer, _preprocessing(model.visual.preprocess_cfg), name=name)


class OpenClipEncoder(ContrastiveEncoder):
    """A model of open_clip."""

    def embed_images(self, images: Tensor) -> Tensor:
        embedding: Tensor = self.model.encode_image(self.preprocessing(images))
        return embedding

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        embedding: Tensor = self.model.encode_text(self.tokenizer(list(texts)).to(self.model.logit_scale.device))
        return embedding

    def provenance(self) -> dict[str, str]:
        import open_clip

        library = f"open_clip {open_clip.__version__}"
        return {"library": library, "source": self.name, "weights": weights.fingerprint(self.model)}


def _find_published(name: str) -> tuple[str, Path, dict[str, Any]]:
    """Architecture, weight file and settings of `ARCHITECTURE/WEIGHTS`."""
    import open_clip

    architecture, _, wanted = name.partition("/")
    known = open_clip.list_models()
    if architecture not in known:
        hint = did_you_mean(architecture, known)
        raise UnknownName(f"no open_clip model or folder named {name!r}.{hint} open_clip.list_models() has all {len(known)}")
    if (file := Path(wanted).expanduser()).is_file():
        return architecture, file, {"pretrained": str(file)}
    published = open_clip.get_pretrained_cfg(architecture, wanted) if wanted else {}
    if not published:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise UnknownName(f"no weights or file {wanted!r} for the open_clip model {architecture}; there are {tags}")
    # `hf_hub` is the repository's two names, and perhaps a file's.
    repository = "/".join(str(published["hf_hub"]).split("/")[:2]) if published.get("hf_hub") else str(published.get("url"))
    named = str(published.get("hf_hub") or "").removeprefix(repository).strip("/") or "open_clip_model.safetensors"
    with weights.loading(name, repository=repository, file=f"{named}, the weights of {name},"):
        file = Path(open_clip.download_pretrained(published))
    # Weights trained with the quick GELU are wrong without it; open_clip itself only warns.
    quick = bool(published.get("quick_gelu")) or bool(open_clip.get_model_config(architecture).get("quick_gelu"))
    keys = ("mean", "std", "interpolation", "resize_mode")
    overrides = {key: published[key] for key in keys if published.get(key) is not None}
    return architecture, file, {"pretrained": str(file), "force_quick_gelu": quick, "force_preprocess_cfg": overrides}


def _preprocessing(settings: dict[str, Any]) -> Preprocessing:
    """The preprocessing of open_clip's evaluation transform."""
    size = settings["size"]
    fill = settings.get("fill_color", 0) / 255
    return Preprocessing(
        size=(size, size) if isinstance(size, int) else tuple(size),
        resizing=_RESIZING[settings["resize_mode"]],
        interpolation="bilinear" if settings["interpolation"] == "bilinear" else "bicubic",
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        fill=(fill, fill, fill),
        sized_by="the weights",
        normalised_by="the weights",
    )


def check_templates(templates: str | Sequence[str]) -> list[str]:
    """The templates as a list, each with a place for the class in it."""
    asked = [templates] if isinstance(templates, str) else list(templates)
    for template in asked:
        if "{class}" not in template:
            raise BadPart(f"the template {template!r} has no place for the class; write '{{class}}' there")
    if not asked:
        raise BadPart("no templates given; leave the option out for the default")
    return asked


@torch.no_grad()
def embed_prompts(encoder: Encoder, classes: Sequence[str], templates: Sequence[str]) -> Tensor:
    """One embedding of length one per class: the mean over the templates, each of length one.  # → (K, D)"""
    words = phrases(classes)
    prompts = [template.replace("{class}", word) for template in templates for word in words]
    batches = [prompts[start : start + TEXTS_AT_ONCE] for start in range(0, len(prompts), TEXTS_AT_ONCE)]
    embedded = torch.cat([functional.normalize(encoder.embed_texts(batch).float(), dim=-1) for batch in batches])
    mean = embedded.reshape(len(templates), len(words), -1).mean(dim=0)  # (K, D)
    return functional.normalize(mean, dim=-1)


def compare(encoder: Encoder, images: Tensor, texts: Tensor) -> Tensor:
    """Logits of images against embedded prompts, differentiable.  # (N, 3, H, W), (K, D) → (N, K)"""
    embedded = functional.normalize(encoder.embed_images(images).float(), dim=-1)  # (N, D)
    return encoder.logits(embedded @ texts.T)


def phrases(classes: Sequence[str]) -> list[str]:
    """Class names as words for a prompt: the first of several names, without underscores; the full name if that is taken."""
    first = [names.split(name)[0].replace("_", " ") for name in classes]
    shared = {name for name, times in Counter(first).items() if times > 1}
    words = [full.replace("_", " ") if name in shared else name for name, full in zip(first, classes, strict=True)]
    twice, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise LabelMismatch(f"{times} classes are called {twice!r}, which words cannot tell apart; give them other names")
    return words
