"""Models from transformers: image classifiers, and CLIP or SigLIP as zero-shot classifiers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels
from counterfoil.parts.encoders.clip import open_encoder
from counterfoil.parts.encoders.prompts import PAPER_TEMPLATE
from counterfoil.parts.models.module import ModuleModel
from counterfoil.parts.models.naming import for_outputs, named
from counterfoil.parts.models.processors import from_processor
from counterfoil.parts.models.zero_shot import ZeroShotModel, zero_shot
from counterfoil.parts.pretrained import Pretrained

_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers calls classes nobody named


def hf_model(
    name: str,
    *,
    classes: str | Sequence[str] | None = None,
    templates: str | Sequence[str] = PAPER_TEMPLATE,
    revision: str | None = None,
    sha256: str | None = None,
) -> ModuleModel | ZeroShotModel:
    """A model from transformers: hf:FOLDER or hf:microsoft/resnet-50; CLIP and SigLIP classify by the names in `classes`.

    Preprocessing is that of the image processor beside the weights, class names those of the configuration unless
    `classes` gives others: a list, a file with one a line, or `imagenet`. `templates` are the prompts of CLIP and SigLIP,
    with `{class}` in them. `revision` is a branch, tag or commit, `sha256` the hash of the weights. Code that comes with a
    model is never run.
    """
    source = Pretrained("hf", name, revision=revision, example="microsoft/resnet-50")
    if _compares_words(source):
        return zero_shot(open_encoder(source, sha256=sha256), classes, templates=templates, what=source.name)
    return _classifier(source, classes, sha256)


def _compares_words(source: Pretrained) -> bool:
    """Whether the model embeds pictures and words and was not saved with a classifier on top."""
    both = "text_config" in source.config and "vision_config" in source.config
    return both and not any(name.endswith("ForImageClassification") for name in source.architectures)


def _classifier(source: Pretrained, classes: str | Sequence[str] | None, sha256: str | None) -> ModuleModel:
    import transformers

    if sha256 is not None:
        source.check_hash(sha256)
    module = source.model(transformers.AutoModelForImageClassification)
    processor = source.processor(transformers.AutoImageProcessor, "preprocessor_config.json")
    names, aliases = _names(module.config, classes, source.name)
    return ModuleModel(
        module,
        names,
        preprocessing=from_processor(processor, what=source.name),
        aliases=aliases,
        origin={"library": f"transformers {transformers.__version__}", "source": source.place},
    )


def _names(config: Any, classes: str | Sequence[str] | None, what: str) -> tuple[list[str], labels.Aliases | None]:
    listed = [str(config.id2label[number]) for number in sorted(config.id2label)]
    if config.problem_type == "multi_label_classification":
        raise BadPart(f"{what}: was trained to give several labels a picture; a classifier with one label is needed")
    if named(classes) is None and not all(_UNNAMED.fullmatch(name) for name in listed):
        return labels.recognise(listed)
    return for_outputs(classes, len(listed), what=what)
