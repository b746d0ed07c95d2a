"""Captions by a model of transformers: BLIP, BLIP-2, GIT, an encoder-decoder, or one that chats about pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import images as pictures
from counterfoil.parts.contracts import Caption, Sample
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.grammar import read
from counterfoil.parts.language.soundness import unsound
from counterfoil.parts.language.tokens import tidy
from counterfoil.parts.pretrained import Pretrained, account_of, chat_inputs, dtype_named, quiet

PREFIX = "a photo of "
QUESTION = "Describe this picture in one sentence of plain words."
EXAMPLE = "Salesforce/blip-image-captioning-large"


@dataclass(frozen=True)
class Wording:
    """How long captions are and how they are made. The lengths are the paper's."""

    least_tokens: int = 20
    most_tokens: int = 100
    beams: int = 1
    repetition_penalty: float = 1.0
    prefix: str = PREFIX  # put before captions that do not say what the picture is
    question: str = QUESTION  # for models that chat

    def __post_init__(self) -> None:
        if not 0 <= self.least_tokens <= self.most_tokens or self.most_tokens < 1 or self.beams < 1:
            raise BadPart(
                f"captioner: tokens are at least 0, at most no fewer than that, and beams at least 1, "
                f"got {self.least_tokens}, {self.most_tokens} and {self.beams}"
            )


def captioner(
    name: str,
    *,
    least_tokens: int = 20,
    most_tokens: int = 100,
    beams: int = 1,
    repetition_penalty: float = 1.0,
    prefix: str = PREFIX,
    question: str = QUESTION,
    dtype: str = "float32",
    revision: str | None = None,
    sha256: str | None = None,
) -> TransformersCaptioner:
    """A captioner from transformers, BLIP, BLIP-2 or any image-to-text model: blip:FOLDER or blip:Salesforce/blip2-opt-2.7b.

    Captions have from `least_tokens` to `most_tokens` tokens. `prefix` goes before those that do not open with what the
    picture is ("a sketch of …"). Models with a chat template are asked `question`.
    """
    source = Pretrained("blip", name, revision=revision, example=EXAMPLE)
    if sha256 is not None:
        source.check_hash(sha256)
    wording = Wording(least_tokens, most_tokens, beams, repetition_penalty, prefix, question)
    model, processor = _load(source, dtype_named(dtype, what=source.name))
    return TransformersCaptioner(model, processor, wording=wording, name=source.place)


class TransformersCaptioner:
    """Says what a picture shows. A caption that loops or makes no sense is a problem, not a caption."""

    def __init__(self, model: Any, processor: Any, *, wording: Wording, name: str) -> None:
        self.model = model.eval().requires_grad_(False)
        self.processor = processor
        self.wording = wording
        self.name = name

    @torch.no_grad()
    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        """One caption a picture.  # (N, 3, H, W)"""
        pils = [Image.fromarray(pictures.to_uint8(image)) for image in images.detach().cpu()]
        if not pils:
            return []
        said = [self._chat(pil) for pil in pils] if self._chats else self._describe(pils)
        return [self._checked(text) for text in said]

    def to(self, device: torch.device | str) -> TransformersCaptioner:
        """The same captioner, moved to a device."""
        self.model.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, source, weights and how captions are made."""
        return {**account_of(self.model, self.name), "wording": repr(self.wording)}

    @property
    def _chats(self) -> bool:
        return bool(getattr(self.processor, "chat_template", None))

    def _describe(self, pils: list[Image.Image]) -> list[str]:
        inputs = self.processor(images=pils, return_tensors="pt").to(self.model.device, self.model.dtype)
        return self._decoded(self._generated(inputs))

    def _chat(self, pil: Image.Image) -> str:
        """One picture at a time, so that the padding of others never changes an answer."""
        inputs = chat_inputs(self.processor, pil, self.wording.question).to(self.model.device, self.model.dtype)
        return self._decoded(self._generated(inputs)[:, inputs["input_ids"].shape[1] :])[0]

    def _generated(self, inputs: Any) -> Tensor:
        with quiet():
            tokens: Tensor = self.model.generate(
                **inputs,
                min_new_tokens=self.wording.least_tokens,
                max_new_tokens=self.wording.most_tokens,
                num_beams=self.wording.beams,
                repetition_penalty=self.wording.repetition_penalty,
                do_sample=False,
            )
        return tokens

    def _decoded(self, tokens: Tensor) -> list[str]:
        texts: list[str] = self.processor.batch_decode(tokens, skip_special_tokens=True)
        return texts

    def _checked(self, text: str) -> Caption:
        text = tidy(text.strip().strip("\"'").removesuffix("."))
        if not text:
            return Caption("", "the captioner said nothing")
        problem = unsound(text)
        if problem:
            return Caption(text, f"{problem[0]}: {problem[1]}")
        return Caption(prefixed(text, self.wording.prefix))


def prefixed(text: str, prefix: str) -> str:
    """The caption with the prefix before it, unless it already opens with what the picture is."""
    reading = read(text, lexicons.load("english"))
    opens = any(phrase.role == "domain" and not phrase.preposition for phrase in reading.phrases[:1])
    if opens or not prefix or text.lower().startswith(prefix.lower()):
        return text
    starts_sentence = text[:2] in ("A ", "An", "Th")
    return tidy(f"{prefix}{text[:1].lower() + text[1:] if starts_sentence else text}")


class _Pair:
    """An image processor and a tokenizer that were saved apart, used as one processor."""

    chat_template = None

    def __init__(self, image_processor: Any, tokenizer: Any) -> None:
        self._image_processor, self._tokenizer = image_processor, tokenizer

    def __call__(self, **given: Any) -> Any:
        return self._image_processor(**given)

    def batch_decode(self, tokens: Tensor, **options: Any) -> Any:
        return self._tokenizer.batch_decode(tokens, **options)


def _load(source: Pretrained, dtype: torch.dtype) -> tuple[Any, Any]:
    import transformers

    model = source.model(transformers.AutoModelForImageTextToText, dtype=dtype)
    if source.config.get("model_type") == "vision-encoder-decoder":
        image_processor = source.processor(transformers.AutoImageProcessor, "preprocessor_config.json")
        return model, _Pair(image_processor, source.processor(transformers.AutoTokenizer, "tokenizer_config.json"))
    return model, source.processor(transformers.AutoProcessor, "processor_config.json")
