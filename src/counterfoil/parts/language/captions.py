"""Captions by a model, from a file or from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadData, BadPart
from counterfoil.core.tables import parse_json, read_json, read_table, read_text
from counterfoil.parts.contracts import Caption, Sample
from counterfoil.parts.images import to_uint8
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.caption_checks import MAX_LETTERS, caption_fault
from counterfoil.parts.language.english import tidy
from counterfoil.parts.language.grammar import parse
from counterfoil.parts.language.text_models import FrozenModel
from counterfoil.parts.language.vision_language import chat_inputs
from counterfoil.parts.pretrained import DTYPES, Dtype, Pretrained
from counterfoil.parts.weights import file_sha256, quiet

PREFIX = "a photo of "
QUESTION = "Describe this image in one sentence of plain words."
EXAMPLE = "Salesforce/blip-image-captioning-large"


@dataclass(frozen=True)
class CaptionOptions:
    """Options of captioning. The lengths are the paper's."""

    min_tokens: int = 20
    max_tokens: int = 100
    beams: int = 1
    repetition_penalty: float = 1.0
    prefix: str = PREFIX  # put before captions that do not say what the image is
    question: str = QUESTION  # for models that chat
    dtype: Dtype = "float32"
    revision: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.min_tokens <= self.max_tokens or self.max_tokens < 1 or self.beams < 1:
            raise BadPart(
                "captioner: min_tokens is at least 0, max_tokens at least 1 and not below it, and beams at least 1, "
                f"got {self.min_tokens}, {self.max_tokens} and {self.beams}"
            )


def captioner(name: str, options: CaptionOptions) -> TransformersCaptioner:
    """A captioner from transformers, BLIP, BLIP-2 or any image-to-text model: blip:FOLDER or blip:Salesforce/blip2-opt-2.7b.

    Captions have from `min_tokens` to `max_tokens` tokens. `prefix` goes before those that do not open with what the
    image is ("a sketch of …"). Models with a chat template are asked `question`.
    """
    source = Pretrained("blip", name, revision=options.revision, example=EXAMPLE)
    if options.sha256 is not None:
        source.check_hash(options.sha256)
    model, processor = _load(source, DTYPES[options.dtype])
    return TransformersCaptioner(model, processor, options=options, name=source.place)


def _load(source: Pretrained, dtype: torch.dtype) -> tuple[Any, Any]:
    import transformers

    model = source.model(transformers.AutoModelForImageTextToText, dtype=dtype)
    if source.config.get("model_type") == "vision-encoder-decoder":
        image_processor = source.processor(transformers.AutoImageProcessor, "preprocessor_config.json")
        return model, _Pair(image_processor, source.processor(transformers.AutoTokenizer, "tokenizer_config.json"))
    return model, source.processor(transformers.AutoProcessor, "processor_config.json")


class _Pair:
    """An image processor and a tokenizer that were saved apart, used as one processor."""

    chat_template = None

    def __init__(self, image_processor: Any, tokenizer: Any) -> None:
        self._image_processor, self._tokenizer = image_processor, tokenizer

    def __call__(self, **given: Any) -> Any:
        return self._image_processor(**given)

    def batch_decode(self, tokens: Tensor, **options: Any) -> Any:
        return self._tokenizer.batch_decode(tokens, **options)


class TransformersCaptioner(FrozenModel):
    """Describes images. A caption that repeats itself or makes no sense is a problem, not a caption."""

    def __init__(self, model: Any, processor: Any, *, options: CaptionOptions, name: str) -> None:
        super().__init__(model, name)
        self.processor = processor
        self.options = options

    @torch.no_grad()
    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        pils = [Image.fromarray(to_uint8(image)) for image in images.detach().cpu()]
        if not pils:
            return []
        chats = bool(getattr(self.processor, "chat_template", None))
        texts = [self._chat(pil) for pil in pils] if chats else self._describe(pils)
        return [self._check(text) for text in texts]

    def provenance(self) -> dict[str, str]:
        return {**super().provenance(), "options": repr(self.options)}

    def _describe(self, pils: list[Image.Image]) -> list[str]:
        inputs = self.processor(images=pils, return_tensors="pt").to(self.model.device, self.model.dtype)
        return list(self.processor.batch_decode(self._generate(inputs), skip_special_tokens=True))

    def _chat(self, pil: Image.Image) -> str:
        """A caption of one image at a time, so that the padding of others never changes an answer."""
        inputs = chat_inputs(self.processor, pil, self.options.question).to(self.model.device, self.model.dtype)
        new = self._generate(inputs)[:, inputs["input_ids"].shape[1] :]
        return str(self.processor.batch_decode(new, skip_special_tokens=True)[0])

    def _generate(self, inputs: Any) -> Tensor:
        with quiet():
            tokens: Tensor = self.model.generate(
                **inputs,
                min_new_tokens=self.options.min_tokens,
                max_new_tokens=self.options.max_tokens,
                num_beams=self.options.beams,
                repetition_penalty=self.options.repetition_penalty,
                do_sample=False,
            )
        return tokens

    def _check(self, text: str) -> Caption:
        text = tidy(text.strip().strip("\"'").removesuffix("."))
        if not text:
            return Caption("", "the captioner gave no text")
        fault = caption_fault(text)
        if fault is not None:
            return Caption(text, f"{fault[0]}: {fault[1]}")
        return Caption(add_prefix(text, self.options.prefix))


def add_prefix(text: str, prefix: str) -> str:
    """The caption with the prefix before it, unless it already opens with what the image is."""
    if not prefix or text.lower().startswith(prefix.lower()):
        return text
    caption = parse(text, lexicons.english())
    if any(phrase.role == "domain" and not phrase.preposition for phrase in caption.phrases[:1]):
        return text
    starts_sentence = text[:2] in ("A ", "An", "Th")
    return tidy(f"{prefix}{text[:1].lower() + text[1:] if starts_sentence else text}")


_IDS = ("image_id", "id", "image", "path", "file", "file_name", "filename")
_TEXTS = ("caption", "text", "description")


def captions(path: str, *, prefix: str = "") -> GivenCaptions:
    """Captions from a file, captions:FILE (.csv, .tsv, .jsonl or COCO's .json), or from the data set's own column, captions:.

    A file has a column image_id (or id, path, file_name) and a column caption; the first caption of an image counts.
    `prefix`, as in "a photo of ", goes before each.
    """
    return GivenCaptions(Path(path).expanduser() if path else None, prefix=prefix)


class GivenCaptions:
    """Finds captions by image id, by source, or by file name where that is unambiguous."""

    def __init__(self, file: Path | None, *, prefix: str = "") -> None:
        self._file = file
        self._prefix = prefix
        self._texts = read_captions(file) if file is not None else {}
        names = Counter(PurePosixPath(key).name for key in self._texts)
        self._by_name = {PurePosixPath(key).name: key for key in self._texts if names[PurePosixPath(key).name] == 1}

    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        """One caption per sample; the images are not used."""
        return [self._caption(sample) for sample in samples]

    def provenance(self) -> dict[str, str]:
        if self._file is None:
            return {"source": "the data set", "prefix": self._prefix}
        return {"captions": str(len(self._texts)), "file": file_sha256(self._file), "prefix": self._prefix}

    def _caption(self, sample: Sample) -> Caption:
        text = sample.caption if self._file is None else self._find(sample)
        where = "the data set" if self._file is None else self._file.name
        if text is None:
            return Caption("", f"{where} has no caption for {sample.image_id!r}")
        if not text.strip():
            return Caption("", f"{where}: the caption of {sample.image_id!r} is empty")
        if len(text) > MAX_LETTERS:
            return Caption(text[:MAX_LETTERS], f"{where}: the caption of {sample.image_id!r} has {len(text)} letters")
        return Caption(tidy(f"{self._prefix}{text}"))

    def _find(self, sample: Sample) -> str | None:
        name = PurePosixPath(sample.source).name
        for key in (sample.image_id, sample.source, self._by_name.get(name), self._by_name.get(PurePosixPath(name).stem)):
            if key is not None and key in self._texts:
                return self._texts[key]
        return None


def _rows(file: Path) -> Iterable[Mapping[str, Any]]:
    what = f"captions:{file}"
    if file.suffix.lower() in (".csv", ".tsv"):
        return [row for _, row in read_table(file, what="captions")]
    if file.suffix.lower() == ".json":
        return _coco(read_json(file, what=what), what)
    lines = enumerate(read_text(file).splitlines(), 1)
    rows = [parse_json(line, what=f"{what}, line {number}") for number, line in lines if line.strip()]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise BadData(f"{what}: entry {number} is a JSON {type(row).__name__}, not an object with image_id and caption")
    return rows


def _coco(content: Any, what: str) -> list[Mapping[str, Any]]:
    """Rows of COCO's layout, where captions name images by number and images have file names; or of a plain mapping."""
    if not isinstance(content, dict):
        raise BadData(f"{what}: neither COCO's layout nor a mapping of image ids to captions")
    listed = content.get("annotations")
    if not isinstance(listed, list):
        return [{"image_id": key, "caption": value} for key, value in content.items()]
    images = content.get("images")
    names = {str(each.get("id")): each.get("file_name") for each in images or () if isinstance(each, dict)}
    rows = [row for row in listed if isinstance(row, dict)]
    return [{"image_id": names.get(str(row.get("image_id")), row.get("image_id")), "caption": row.get("caption")} for row in rows]


def read_captions(file: Path) -> dict[str, str]:
    """The captions of a file by what it calls their images; the first caption of an image counts."""
    found: dict[str, str] = {}
    for number, row in enumerate(_rows(file), 1):
        values = {str(key).strip().casefold(): value for key, value in row.items()}
        image = next((values[name] for name in _IDS if values.get(name) not in (None, "")), None)
        text = next((values[name] for name in _TEXTS if name in values), None)
        if image is None or not isinstance(text, str):
            fields = ", ".join(map(str, values)) or "none"
            raise BadData(f"captions:{file}: entry {number} has the fields {fields}; image_id and caption are needed")
        found.setdefault(str(image), text)
    if not found:
        raise BadData(f"captions:{file}: holds no captions; give one image per line, with image_id and caption")
    return found
