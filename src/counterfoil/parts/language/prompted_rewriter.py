"""Ask a text model for edits and read its answer.

A style says how a model is asked: for a numbered list of edits, or for one edit at a time by a template. A model or adapter
that was trained in a style keeps it in `rewriter.json` next to its weights, so that asking and training never differ.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from counterfoil.core.errors import BadPart, BadWeights, one_line
from counterfoil.core.tables import read_json
from counterfoil.parts import weights
from counterfoil.parts.contracts import Movable, Proposals, Rejection, RewriteRequest
from counterfoil.parts.http import EndpointOptions
from counterfoil.parts.language.caption_checks import caption_fault
from counterfoil.parts.language.edits import check_factor
from counterfoil.parts.language.english import tidy
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.parts.language.lexicon_rewriter import PROPOSALS
from counterfoil.parts.language.text_models import (
    ChatEndpoint,
    Completion,
    LocalTextModel,
    Sampling,
    TextModel,
    load_causal,
    seed_of,
)
from counterfoil.parts.pretrained import DTYPES, Dtype

NOTE: Final = "rewriter.json"
BASE_URL: Final = "https://api.openai.com/v1"
KEY: Final = "OPENAI_API_KEY"
MAX_KEPT: Final = 600  # characters of an answer that are kept with a rejection

_CHANGES: Final[dict[str, str]] = {
    "subject": "Replace the main subject, the person, animal or thing that the caption is about, with another one.",
    "object": "Replace one object other than the main subject with another one, or add one if there is none.",
    "background": "Replace the background, the place or the surroundings, with another one, or add one if there is none.",
    "adjective": "Replace one adjective, such as a colour, size or material, with another one, or add one if there is none.",
    "domain": "Replace what kind of image it is, such as photo, sketch or oil painting, with another one.",
    "weather": "Replace the weather with another one, or add one if there is none.",
}
_EXAMPLES: Final[dict[str, str]] = {
    "subject": "a photo of a cat lying on a red sofa in a living room",
    "object": "a photo of a dog lying on a red bench in a living room",
    "background": "a photo of a dog lying on a red sofa in a garden",
    "adjective": "a photo of a dog lying on a blue sofa in a living room",
    "domain": "a pencil sketch of a dog lying on a red sofa in a living room",
    "weather": "a photo of a dog lying on a red sofa in a living room in the rain",
}
_EXAMPLE: Final = "a photo of a dog lying on a red sofa in a living room"
_INSTRUCTION: Final = (
    "Write {proposals} variations of a caption that differ from it in one thing only. {change} "
    "Keep every other word as it is. Answer with a numbered list of captions and nothing else.\n"
    f"Example caption: {_EXAMPLE}\nExample variation: 1. {{example}}\nCaption: {{caption}}"
)


@dataclass(frozen=True)
class PromptStyle:
    """A way of asking a model for edits, and the form of its answer.

    With a template, one answer is one edit, and the model is asked once per proposal; without, one answer is a numbered list.
    """

    name: str
    template: str = ""  # with {factor} and {caption}
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)  # the model's own words for a factor, used in turn
    lexicon: str = "english"  # the word lists that its captions are read by

    def __post_init__(self) -> None:
        if self.template and not ("{factor}" in self.template and "{caption}" in self.template):
            raise BadPart(f"style {self.name!r}: its template has {{factor}} and {{caption}} in it, got {self.template!r}")

    @property
    def is_numbered(self) -> bool:
        """One answer holds all proposals as numbered lines."""
        return not self.template

    def prompts(self, request: RewriteRequest, proposals: int, tokenizer: Any) -> Iterator[tuple[str, int]]:
        """Prompts and seeds for one request."""
        names = self.words.get(request.factor, (request.factor,))
        for turn in range(1 if self.is_numbered else proposals):
            text = self.prompt(request.caption, names[turn % len(names)], proposals, tokenizer)
            yield text, seed_of(request.seed, request.factor, request.caption, turn)

    def prompt(self, caption: str, factor: str, proposals: int, tokenizer: Any = None) -> str:
        """The text that the model completes, by the tokenizer's chat template where it has one."""
        if not self.is_numbered:
            return self.template.replace("{factor}", factor).replace("{caption}", caption)
        text = _INSTRUCTION.format(proposals=proposals, change=_CHANGES[factor], example=_EXAMPLES[factor], caption=caption)
        if tokenizer is None:
            return text
        if getattr(tokenizer, "chat_template", None):
            messages = [{"role": "user", "content": text}]
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        return f"### Instruction:\n{text}\n\n### Variations:\n"

    def answer(self, edits: Sequence[str]) -> str:
        """The answer that a model is trained to give to a prompt."""
        return "\n".join(f"{number}. {edit}" for number, edit in enumerate(edits, 1)) if self.is_numbered else edits[0]

    def read(self, request: RewriteRequest, answers: Sequence[Completion], proposals: int) -> Proposals:
        """The captions in a model's answers to the prompts of one request, and why the rest are none."""
        for answer in answers:
            if answer.fault is not None:
                return Proposals(rejections=(Rejection(request.factor, "", *answer.fault),))
        if self.is_numbered:
            return read_numbered(answers[0], request.factor, proposals=proposals)
        captions, rejections = [], []
        for answer in answers:
            text = _clean(answer.text.split("\n")[0])
            fault = caption_fault(text) if text else ("nonsense", "an empty answer")
            if fault is None and answer.cut_off:
                fault = ("nonsense", "cut off, the model ran out of tokens")
            if fault is None:
                captions.append(text)
            else:
                rejections.append(Rejection(request.factor, text[:MAX_KEPT], *fault))
        return Proposals(tuple(captions), tuple(rejections))


STYLES: Final = {
    "instruct": PromptStyle("instruct"),
    "plain": PromptStyle("plain", template="{factor} : {caption} =>"),
}
"""The styles that need no file."""


def style_named(name: str) -> PromptStyle:
    """The style of that name."""
    if name not in STYLES:
        raise BadPart(f"rewriter: no style of asking is called {name!r}; styles are {', '.join(STYLES)}")
    return STYLES[name]


def read_note(folder: Path) -> dict[str, Any]:
    """The note that training or a card left next to a model or adapter; empty for weights from elsewhere."""
    file = folder / NOTE
    note = read_json(file) if file.is_file() else {}
    if not isinstance(note, dict):
        raise BadWeights(f"{file}: a note is a JSON object, got {type(note).__name__}")
    return note


def style_of(folder: Path) -> PromptStyle | None:
    """The style in which the model or adapter in a folder was trained, if its note says so."""
    found = read_note(folder).get("style")
    try:
        return None if found is None else PromptStyle(**found)
    except TypeError as error:
        raise BadWeights(f"{folder / NOTE}: its style cannot be read ({one_line(error)})") from None


class PromptedRewriter(Movable):
    """Asks a text model for captions with one factor changed."""

    def __init__(self, model: TextModel, style: PromptStyle, *, proposals: int = PROPOSALS) -> None:
        if proposals < 1:
            raise BadPart(f"rewriter: proposals is the number of edits per factor, at least 1, got {proposals}")
        self.model = model
        self.style = style
        self.words = style.lexicon
        self.proposals = proposals

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        asked: list[tuple[int, str, int]] = []
        for at, request in enumerate(requests):
            check_factor(request.factor)
            asked += [(at, *prompt) for prompt in self.style.prompts(request, self.proposals, self.model.tokenizer)]
        found: dict[int, list[Completion]] = defaultdict(list)
        answers = self.model.write([prompt for _, prompt, _ in asked], [seed for *_, seed in asked])
        for (at, _, _), answer in zip(asked, answers, strict=True):
            found[at].append(answer)
        return [self.style.read(request, found[at], self.proposals) for at, request in enumerate(requests)]

    def provenance(self) -> dict[str, str]:
        return {**self.model.provenance(), "style": self.style.name, "proposals": str(self.proposals)}


@dataclass(frozen=True)
class LlmOptions(Sampling):
    adapter: str | None = None
    style: str | None = None
    proposals: int = PROPOSALS
    dtype: Dtype = "float32"
    revision: str | None = None


def llm_rewriter(name: str, options: LlmOptions) -> PromptedRewriter:
    """A causal language model from transformers that follows instructions: llm:FOLDER or llm:meta-llama/Llama-3.2-1B-Instruct.

    `adapter` is the folder of a LoRA adapter, such as `counterfoil train-rewriter` writes. `style` says how the model
    is asked: `instruct` for numbered lists, unless the model or adapter was trained otherwise. `proposals` captions are asked
    for. `batch` is the number of prompts that go through the model at a time.
    """
    model, tokenizer, location = load_causal(name, dtype=DTYPES[options.dtype], revision=options.revision)
    trained, where = style_of(Path(location)), f"llm:{name}"
    if options.adapter is not None:
        folder = Path(options.adapter).expanduser()
        model, trained, where = attach_adapter(model, folder), style_of(folder) or trained, f"adapter {folder}"
    if options.style and trained and options.style != trained.name:
        raise BadPart(f"{where}: was trained to be asked in the style {trained.name!r}, not {options.style!r}; leave style out")
    sampling = Sampling(options.temperature, options.top_p, options.max_tokens, options.batch)
    text_model = LocalTextModel(model, tokenizer, sampling, name=location)
    return PromptedRewriter(text_model, trained or style_named(options.style or "instruct"), proposals=options.proposals)


def attach_adapter(model: Any, folder: Path) -> Any:
    """The model with the LoRA adapter of a folder merged into it."""
    from peft import PeftModel

    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / name).is_file():
            raise BadWeights(f"adapter {folder}: has no {name}; give the folder that 'counterfoil train-rewriter' wrote")
    with weights.loading(folder / "adapter_model.safetensors"):
        try:
            tuned = PeftModel.from_pretrained(model, str(folder))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise BadWeights(f"adapter {folder}: does not fit a {type(model).__name__}: {one_line(error)}") from None
        # Merged, it costs nothing at run time and its weights are part of the model's fingerprint.
        return tuned.merge_and_unload()


@dataclass(frozen=True)
class OpenAiOptions(EndpointOptions):
    timeout: float = 60.0
    token_env: str | None = KEY
    base_url: str = BASE_URL
    proposals: int = PROPOSALS
    temperature: float = 0.8
    max_tokens: int = 512
    parallel: int = 4


def openai_rewriter(model: str, options: OpenAiOptions) -> PromptedRewriter:
    """A language model behind an OpenAI-compatible endpoint: openai:gpt-4o-mini, or openai:MODEL with base_url: http://…/v1.

    The key is read from the environment variable `token_env` and written nowhere; an endpoint of your own may need none. A
    request that fails is tried `retries` more times, `backoff` seconds later and then twice as long each time; then it
    is counted as not answered. `rate` is the highest number of requests per second, `parallel` that of requests under way.
    """
    if not model:
        raise BadPart("openai: name a model, as in openai:gpt-4o-mini")
    has_key = bool(os.environ.get(options.token_env or ""))
    if not has_key and options.base_url == BASE_URL:
        raise BadPart(f"openai:{model}: no key; set the environment variable {options.token_env}, or give base_url")
    endpoint = ChatEndpoint(
        f"{options.base_url.rstrip('/')}/chat/completions",
        options if has_key else replace(options, token_env=None),
        model=model,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        parallel=options.parallel,
    )
    return PromptedRewriter(endpoint, STYLES["instruct"], proposals=options.proposals)


_NUMBERED: Final = re.compile(r"^\s*(?:(?:\(?\d{1,3}\s*[.):\]]|[-*•])\s+)+(?P<text>\S.*)$")
_LABEL: Final = re.compile(r"^(?:caption|variation|edited caption|edit)\s*\d*\s*:\s*", re.IGNORECASE)
_FENCE: Final = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
_THINKING: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def read_numbered(answer: Completion, factor: str, *, proposals: int) -> Proposals:
    """The numbered captions of an answer, at most `proposals`; an answer without any is one rejection that says why."""
    text = _FENCE.sub("", _THINKING.sub("", answer.text)).strip()
    lines = text.splitlines()
    found = [match["text"] for line in lines if (match := _NUMBERED.match(line))]
    rejections = []
    if answer.cut_off and found and _NUMBERED.match(lines[-1]):  # half a caption
        rejections.append(Rejection(factor, found.pop()[:MAX_KEPT], "nonsense", "cut off, the model ran out of tokens"))
    if not found and not rejections:
        fault = caption_fault(text[:MAX_KEPT]) if text else ("nonsense", "an empty answer")
        return Proposals(
            rejections=(Rejection(factor, text[:MAX_KEPT], *(fault or ("nonsense", "no numbered captions in the answer"))),)
        )
    return Proposals(tuple(_clean(line) for line in found[:proposals]), tuple(rejections))


def _clean(line: str) -> str:
    """A line without the quotes, emphasis and labels that models put around a caption."""
    text = _LABEL.sub("", line.replace("**", "").replace("__", "").strip())
    text = text.strip().strip("\"'“”`").strip()
    return tidy(text.removesuffix("."))


assert set(_CHANGES) == set(_EXAMPLES) == set(FACTORS)
