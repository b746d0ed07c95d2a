"""Classifiers from transformers; CLIP, SigLIP and open_clip as zero-shot classifiers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels
from counterfoil.parts.encoders import clip
from counterfoil.parts.encoders.clip import PAPER_TEMPLATE
from counterfoil.parts.models.modules import ModuleModel, ZeroShotModel, zero_shot
from counterfoil.parts.models.preprocessing import Crop, from_processor
from counterfoil.parts.pretrained import Pretrained

_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers calls classes without a name


@dataclass(frozen=True)
class OpenClipModelOptions:
    classes: str | Sequence[str] | None = None
    templates: str | Sequence[str] = PAPER_TEMPLATE
    sha256: str | None = None


@dataclass(frozen=True)
class HfModelOptions(OpenClipModelOptions):
    revision: str | None = None
    crop: Crop = "own"


def hf_model(name: str, options: HfModelOptions) -> ModuleModel | ZeroShotModel:
    """A model from transformers: hf:FOLDER or hf:microsoft/resnet-50; CLIP and SigLIP classify by the names in `classes`.

    Preprocessing is that of the image processor next to the weights, class names those of the configuration unless
    `classes` gives others: a list, a file with one per line, or `imagenet`. `templates` are the prompts of CLIP and SigLIP,
    with `{class}` in them. `crop: none` leaves a classifier's crop out. `revision` is a branch, tag or commit, `sha256` the
    hash of the weights. Code that comes with a model is never run.
    """
    import transformers

    source = Pretrained("hf", name, revision=options.revision, example="microsoft/resnet-50")
    both = "text_config" in source.config and "vision_config" in source.config
    if both and not any(architecture.endswith("ForImageClassification") for architecture in source.architectures):
        encoder = clip.open_encoder(source, sha256=options.sha256)
        return zero_shot(encoder, options.classes, templates=options.templates, what=source.name)
    if options.sha256 is not None:
        source.check_hash(options.sha256)
    module = source.model(transformers.AutoModelForImageClassification)
    processor = source.processor(transformers.AutoImageProcessor, "preprocessor_config.json")
    names, aliases = _names(module.config, options.classes, source.name)
    return ModuleModel(
        module,
        names,
        preprocessing=from_processor(processor, what=source.name).with_crop(options.crop),
        aliases=aliases,
        origin={"library": f"transformers {transformers.__version__}", "source": source.place},
    )


def openclip_model(name: str, options: OpenClipModelOptions) -> ZeroShotModel:
    """A model of open_clip as a zero-shot classifier: openclip:ViT-B-32/openai, openclip:ViT-B-32/FILE, or openclip:FOLDER.

    `classes` are a list, a file with one name per line, or `imagenet`; `templates` are prompts with `{class}` in them,
    averaged when there are several; `sha256` is the hash of the weights. Names are as for the oracle `openclip`.
    """
    encoder = clip.load_openclip(name, clip.OpenClipEncoderOptions(options.sha256))
    return zero_shot(encoder, options.classes, templates=options.templates, what=f"openclip:{name}")


def _names(config: Any, classes: str | Sequence[str] | None, what: str) -> tuple[list[str], labels.Aliases | None]:
    listed = [str(config.id2label[number]) for number in sorted(config.id2label)]
    if config.problem_type == "multi_label_classification":
        raise BadPart(f"{what}: was trained to give several labels per image; a classifier with one label is needed")
    if classes is None and not all(_UNNAMED.fullmatch(name) for name in listed):
        return labels.recognise(listed)
    return labels.names_for_outputs(classes, len(listed), what=what)
