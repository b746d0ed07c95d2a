"""Vision-language models that answer questions about images: models of transformers, and chat endpoints."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.http import EndpointOptions
from counterfoil.parts.images import png, to_uint8
from counterfoil.parts.language.text_models import ChatEndpoint, FrozenModel
from counterfoil.parts.pretrained import DTYPES, Dtype, Pretrained

EXAMPLE = "llava-hf/llava-1.5-7b-hf"
MAX_ANSWER = 2_000  # characters of an answer; the rest is cut off


@dataclass(frozen=True)
class VlmWeights:
    """The weights to read, and the form of a question."""

    prompt: str | None = None
    dtype: Dtype = "float32"
    revision: str | None = None
    sha256: str | None = None


class VisionLanguageModel(FrozenModel):
    """A vision-language model of transformers, asked about one image at a time: other images never change an answer."""

    def __init__(self, model: Any, processor: Any, *, prompt: str | None = None, name: str, max_tokens: int = 40) -> None:
        if getattr(model.config, "is_encoder_decoder", False):
            raise BadPart(f"vlm:{name}: a {type(model).__name__} answers in a way not known here; choose a model that chats")
        if prompt is not None and "{question}" not in prompt:
            raise BadPart(f"vlm:{name}: the prompt {prompt!r} has no place for the question; write '{{question}}' there")
        if max_tokens < 1:
            raise BadPart(f"vlm:{name}: max_tokens is the length of an answer in tokens, at least 1, got {max_tokens}")
        super().__init__(model, name)
        self.processor = processor
        self.prompt = prompt
        self.max_tokens = max_tokens
        self._tokens = lru_cache(maxsize=256)(self._first_tokens)

    @classmethod
    def load(cls, name: str, options: VlmWeights, *, max_tokens: int = 40) -> VisionLanguageModel:
        """The model and processor of a local folder or a hub repository."""
        import transformers

        source = Pretrained("vlm", name, revision=options.revision, example=EXAMPLE)
        if options.sha256 is not None:
            source.check_hash(options.sha256)
        model = source.model(transformers.AutoModelForImageTextToText, dtype=DTYPES[options.dtype])
        processor = source.processor(transformers.AutoProcessor, "processor_config.json")
        return cls(model, processor, prompt=options.prompt, name=source.place, max_tokens=max_tokens)

    @torch.no_grad()
    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        return [self._write(image, question) for image, question in zip(images, questions, strict=True)]

    @torch.no_grad()
    def answer_probabilities(self, image: Tensor, question: str, answers: Sequence[Sequence[str]]) -> Tensor:
        """The probability of each answer against the others, by the first token of its spellings.  # → (A,)

        Nothing is generated, so that the model cannot evade the question.
        """
        tokens = self._tokens(tuple(tuple(spellings) for spellings in answers))
        logits = self.model(**self._inputs(image, question)).logits[0, -1].float()  # (vocabulary,)
        return torch.stack([logits[list(each)].logsumexp(dim=0) for each in tokens]).softmax(dim=0)

    def provenance(self) -> dict[str, str]:
        return {**super().provenance(), "max_tokens": str(self.max_tokens)}

    def _write(self, image: Tensor, question: str) -> str:
        inputs = self._inputs(image, question)
        written = self.model.generate(**inputs, max_new_tokens=self.max_tokens, do_sample=False)
        new = written[0, inputs["input_ids"].shape[1] :]
        return str(self.processor.tokenizer.decode(new, skip_special_tokens=True)).strip()[:MAX_ANSWER]

    def _inputs(self, image: Tensor, question: str) -> Any:
        pil = Image.fromarray(to_uint8(image))
        if self.prompt is None and getattr(self.processor, "chat_template", None):
            found = chat_inputs(self.processor, pil, question)
        else:
            found = self.processor(text=[self._text(question)], images=[pil], return_tensors="pt")
        return found.to(self.model.device, self.model.dtype)

    def _text(self, question: str) -> str:
        if self.prompt is not None:
            return self.prompt.replace("{question}", question)
        token = getattr(self.processor, "image_token", None)
        if not isinstance(token, str):
            raise BadPart(f"vlm:{self.name}: it comes without a chat template; give prompt, with {{question}} and its image mark")
        return f"{token}\n{question}\n"

    def _first_tokens(self, answers: tuple[tuple[str, ...], ...]) -> list[tuple[int, ...]]:
        """The tokens by which each answer, in any spelling, begins and no other does."""
        tokenizer = self.processor.tokenizer
        first = [{ids[0] for text in each if (ids := tokenizer.encode(text, add_special_tokens=False))} for each in answers]
        times = Counter(token for each in first for token in each)
        own = [tuple(sorted(token for token in each if times[token] == 1 and token != tokenizer.unk_token_id)) for each in first]
        for spellings, each in zip(answers, own, strict=True):
            if not each:
                raise BadPart(f"vlm:{self.name}: its vocabulary cannot tell the answer {spellings[0]!r} from the others")
        return own


@dataclass(frozen=True)
class VlmChatOptions(VlmWeights):
    max_tokens: int = 40


def vlm_chat(name: str, options: VlmChatOptions) -> VisionLanguageModel:
    """An image-text-to-text model of transformers, asked in words: vlm:FOLDER or vlm:llava-hf/llava-1.5-7b-hf.

    It answers greedily, with `max_tokens` tokens at most. `prompt`, with `{question}` in it, stands in for the model's chat
    template; `dtype` is float32, bfloat16 or float16.
    """
    return VisionLanguageModel.load(name, options, max_tokens=options.max_tokens)


@dataclass(frozen=True)
class HttpChatOptions(EndpointOptions):
    timeout: float = 60.0
    model: str = ""
    max_tokens: int = 40
    extra: Mapping[str, Any] = field(default_factory=dict)


def http_chat(address: str, options: HttpChatOptions) -> HttpChat:
    """A vision-language model behind an endpoint that speaks OpenAI's chat: http://host:8000/v1/chat/completions.

    `model` names the model there; `extra` is sent along with every request. An endpoint that fails is asked `retries` more
    times, then the run pauses, and the same command resumes it. `token_env` names an environment variable with a token.
    """
    endpoint = ChatEndpoint(address, options, model=options.model, max_tokens=options.max_tokens, extra=options.extra)
    return HttpChat(endpoint)


class HttpChat:
    """Asks an endpoint, one image per request."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        self._endpoint = endpoint

    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        return [self._ask(image, question) for image, question in zip(images, questions, strict=True)]

    def provenance(self) -> dict[str, str]:
        return self._endpoint.provenance()

    def _ask(self, image: Tensor, question: str) -> str:
        coded = base64.b64encode(png(image.cpu())).decode()
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{coded}"}},
            {"type": "text", "text": question},
        ]
        return self._endpoint.complete(content).text[:MAX_ANSWER]


def chat_inputs(processor: Any, image: Image.Image, question: str) -> Any:
    """The inputs of a model that chats for an image and a question."""
    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
