"""Asks a vision-language model a question about a picture and reads how likely it is to begin each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import images as pictures
from counterfoil.parts.pretrained import Pretrained, account_of, chat_inputs, dtype_named


def load(source: Pretrained, *, prompt: str | None, dtype: str) -> Answerer:
    """The model and processor in a local folder or a hub repository."""
    import transformers

    model = source.model(transformers.AutoModelForImageTextToText, dtype=dtype_named(dtype, what=source.name))
    processor = source.processor(transformers.AutoProcessor, "processor_config.json")
    return Answerer(model, processor, prompt=prompt, name=source.place)


class Answerer:
    """A vision-language model that is asked one picture at a time: prompts of other pictures never change an answer.

    Nothing is generated. The probabilities of the first token of each allowed answer are compared, so that the model cannot
    answer beside the point.
    """

    def __init__(self, model: Any, processor: Any, *, prompt: str | None = None, name: str) -> None:
        if getattr(model.config, "is_encoder_decoder", False):
            raise BadPart(f"vlm:{name}: a {type(model).__name__} answers in a way not known here; choose a model that chats")
        if prompt is not None and "{question}" not in prompt:
            raise BadPart(f"vlm:{name}: the prompt {prompt!r} has no place for the question; write '{{question}}' there")
        self.model = model.eval().requires_grad_(False)
        self.processor = processor
        self.prompt = prompt
        self.name = name
        self._tokens = lru_cache(maxsize=256)(self._find_tokens)

    @torch.no_grad()
    def chances(self, image: Tensor, question: str, answers: Sequence[Sequence[str]]) -> Tensor:
        """How the chance of beginning any of the answers is shared between them; each goes by several spellings.  # → (A,)"""
        tokens = self._tokens(tuple(tuple(spellings) for spellings in answers))
        inputs = self.inputs(Image.fromarray(pictures.to_uint8(image)), question)
        logits = self.model(**inputs).logits[0, -1].float()  # (vocabulary,)
        return torch.stack([logits[list(each)].logsumexp(dim=0) for each in tokens]).softmax(dim=0)

    def to(self, device: torch.device | str) -> Answerer:
        """The same model, moved to a device."""
        self.model.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, source and weights."""
        return account_of(self.model, self.name)

    def inputs(self, image: Image.Image, question: str) -> Any:
        """What the model is given for a picture and a question."""
        if self.prompt is None and getattr(self.processor, "chat_template", None):
            found = chat_inputs(self.processor, image, question)
        else:
            found = self.processor(text=[self._text(question)], images=[image], return_tensors="pt")
        return found.to(self.model.device, self.model.dtype)

    def _text(self, question: str) -> str:
        if self.prompt is not None:
            return self.prompt.replace("{question}", question)
        token = getattr(self.processor, "image_token", None)
        if not isinstance(token, str):
            raise BadPart(f"vlm:{self.name}: it comes without a chat template; give prompt, with {{question}} and its image mark")
        return f"{token}\n{question}\n"

    def _find_tokens(self, answers: tuple[tuple[str, ...], ...]) -> list[tuple[int, ...]]:
        """The tokens by which each answer, in any spelling, begins and no other does."""
        tokenizer = self.processor.tokenizer
        first = [{ids[0] for text in each if (ids := tokenizer.encode(text, add_special_tokens=False))} for each in answers]
        times = Counter(token for each in first for token in each)
        own = [tuple(sorted(token for token in each if times[token] == 1 and token != tokenizer.unk_token_id)) for each in first]
        for spellings, each in zip(answers, own, strict=True):
            if not each:
                raise BadPart(f"vlm:{self.name}: its vocabulary cannot tell the answer {spellings[0]!r} from the others")
        return own
