"""CLIP and SigLIP from transformers, and what they share with the models of open_clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Movable, Trait
from counterfoil.parts.models.preprocessing import Preprocessing, from_processor
from counterfoil.parts.pretrained import Pretrained, account_of

EXAMPLE = "openai/clip-vit-base-patch32"


@dataclass(frozen=True)
class EncoderOptions:
    """The hash of the weights, and a branch, tag or commit of the repository."""

    sha256: str | None = None
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


class ContrastiveEncoder(Movable):
    """A model that embeds images and texts into one space, with its tokenizer and preprocessing."""

    def __init__(self, model: Any, tokenizer: Any, preprocessing: Preprocessing, *, name: str) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        self.name = name
        self.pairwise = getattr(model, "logit_bias", None) is not None

    @property
    def size(self) -> int | None:
        return self.preprocessing.side

    def logits(self, similarity: Tensor) -> Tensor:
        """Similarities on the scale the model was trained at.  # (N, K)"""
        scaled: Tensor = similarity * self.model.logit_scale.exp()
        return scaled + self.model.logit_bias if self.pairwise else scaled

    def describe(self) -> list[Trait]:
        return self.preprocessing.describe()


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
