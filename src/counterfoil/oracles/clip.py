"""CLIP and SigLIP from transformers as an oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from counterfoil import weights
from counterfoil.errors import BadPart
from counterfoil.models.preprocessing import Preprocessing
from counterfoil.oracles.acceptance import Acceptance, Unsure
from counterfoil.oracles.zero_shot import PAPER_TEMPLATE, ZeroShotOracle

_FILTERS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def clip_oracle(
    name: str,
    *,
    templates: str | Sequence[str] = PAPER_TEMPLATE,
    threshold: float = 0.0,
    margin: float = 0.0,
    unsure: Unsure = "reject",
) -> ZeroShotOracle:
    """CLIP or SigLIP from transformers, asked by class names: clip:FOLDER, or clip:openai/clip-vit-base-patch32 from the hub.

    A picture keeps its label when the label's prompt is the nearest. `templates` are prompts with `{class}` in them,
    averaged when there are several. `margin` asks for a lead over the next class; where no class has a probability of
    `threshold`, the oracle rejects or, with `unsure: abstain`, says nothing.
    """
    acceptance = Acceptance(threshold=threshold, margin=margin, unsure=unsure)
    asked = (templates,) if isinstance(templates, str) else tuple(templates)
    return ZeroShotOracle(load(name), templates=asked, acceptance=acceptance)


def load(name: str) -> TransformersEncoder:
    """The model, tokenizer and preprocessing in a local folder or a hub repository."""
    import transformers

    if not name:
        raise BadPart("clip: name a local folder or a hub repository, as in clip:openai/clip-vit-base-patch32")
    folder = weights.local_folder(name)
    if folder is not None and not (folder / "config.json").is_file():
        raise BadPart(f"clip:{name}: the folder has no config.json; save model, tokenizer and processor with save_pretrained")
    place = name if folder is None else str(folder)
    reading = contextlib.nullcontext() if folder is None else weights.loading(folder)
    with weights.hub_access(name, "config.json"), reading, _quiet():
        model = transformers.AutoModel.from_pretrained(place, dtype=torch.float32, weights_only=True)
        if not all(hasattr(model, needed) for needed in ("get_image_features", "get_text_features", "logit_scale")):
            raise BadPart(f"clip:{name}: holds a {type(model).__name__}, which does not compare pictures with words")
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        processor = transformers.AutoImageProcessor.from_pretrained(place)
    return TransformersEncoder(model, tokenizer, _preprocessing(processor, name), name=name)


class TransformersEncoder:
    """A CLIP-like model of transformers with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, preprocessing: Preprocessing, *, name: str) -> None:
        self.model = model
        self.model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        self.name = name
        self.pairwise = getattr(model, "logit_bias", None) is not None
        text = self.model.config.text_config
        self._longest = int(text.max_position_embeddings)
        # SigLIP was trained on texts filled up to one length, and sees the filling; CLIP stops at the end of the text.
        self._padding = "max_length" if str(self.model.config.model_type).startswith("siglip") else "longest"

    def embed_images(self, images: Tensor) -> Tensor:
        """Embeddings of pictures.  # (N, 3, H, W) → (N, D)"""
        return _pooled(self.model.get_image_features(pixel_values=self.preprocessing(images)))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of texts.  # → (len(texts), D)"""
        tokens = self.tokenizer(
            list(texts), padding=self._padding, truncation=True, max_length=self._longest, return_tensors="pt"
        ).to(self.model.device)
        accepted = {key: tokens[key] for key in ("input_ids", "attention_mask") if key in tokens}
        return _pooled(self.model.get_text_features(**accepted))

    def logits(self, similarity: Tensor) -> Tensor:
        """Similarities on the scale the model was trained at.  # (N, K)"""
        scaled: Tensor = similarity * self.model.logit_scale.exp()
        return scaled + self.model.logit_bias if self.pairwise else scaled

    def to(self, device: torch.device | str) -> TransformersEncoder:
        """The same encoder, moved to a device."""
        self.model.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, source and weights."""
        import transformers

        library = f"transformers {transformers.__version__}"
        return {"library": library, "source": self.name, "weights": weights.fingerprint(self.model)}


def _pooled(output: Any) -> Tensor:
    """The embedding in what `get_…_features` gives: a tensor, or since version 5 an output with one in it."""
    embedding: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return embedding


def _preprocessing(processor: Any, name: str) -> Preprocessing:
    """What the image processor does to a picture."""
    if getattr(processor, "max_num_patches", None):
        raise BadPart(f"clip:{name}: takes pictures as patches of changing number; choose a variant with a fixed size")
    size = dict(processor.size or {})
    crop = dict(processor.crop_size or {}) if getattr(processor, "do_center_crop", False) else {}
    if size.get("shortest_edge"):
        resize, resizing = (size["shortest_edge"],) * 2, "shorter"
    elif size.get("height") and size.get("width"):
        resize, resizing = (size["height"], size["width"]), "squash"
    else:
        raise BadPart(f"clip:{name}: its image processor resizes to {size}, which is not known here")
    if int(processor.resample) not in _FILTERS:
        raise BadPart(f"clip:{name}: its image processor resizes by Pillow's filter {int(processor.resample)}, not known here")
    seen = (crop["height"], crop["width"]) if crop else resize
    normalised = processor.do_normalize
    return Preprocessing(
        size=seen,
        resize=resize,
        resizing="squash" if resizing == "squash" else "shorter",
        interpolation=_FILTERS[int(processor.resample)],
        mean=tuple(processor.image_mean) if normalised else None,
        std=tuple(processor.image_std) if normalised else None,
        rounding=int,
    )


@contextlib.contextmanager
def _quiet() -> Any:
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
