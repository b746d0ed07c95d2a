"""Image features of networks that know no words: of transformers (DINOv2), of timm, or of a TorchScript program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.encoders.clip import EncoderOptions, ImageEncoder
from counterfoil.parts.models.preprocessing import Preprocessing, from_processor
from counterfoil.parts.models.programs import ScriptRunner
from counterfoil.parts.models.timm_models import TimmOptions, timm_model
from counterfoil.parts.pretrained import Pretrained, account_of

EXAMPLE = "facebook/dinov2-small"


def hf_features(name: str, options: EncoderOptions) -> FeatureEncoder:
    """Features of an image encoder from transformers: hf:FOLDER, or hf:facebook/dinov2-small from the hub.

    They are the network's pooled output, or its first token where it has none.
    """
    import transformers

    source = Pretrained("hf", name, revision=options.revision, example=EXAMPLE)
    if options.sha256 is not None:
        source.check_hash(options.sha256)
    model = source.model(transformers.AutoModel).eval().requires_grad_(False)
    network = getattr(model, "vision_model", model)  # of a model that compares images with words, the half that sees
    processor = source.processor(transformers.AutoImageProcessor, "preprocessor_config.json")

    def embed(inputs: Tensor) -> Tensor:
        output = network(pixel_values=inputs)
        pooled = getattr(output, "pooler_output", None)
        features: Tensor = output.last_hidden_state[:, 0] if pooled is None else pooled
        return features.flatten(1)

    return FeatureEncoder(network, embed, from_processor(processor, what=source.name), account_of(model, source.place))


def timm_features(name: str, options: TimmOptions) -> FeatureEncoder:
    """Features of a network of timm, as they reach its classifier: timm:vit_small_patch14_dinov2.lvd142m, timm:FOLDER."""
    model = timm_model(name, options)
    network: Any = model.module

    def embed(inputs: Tensor) -> Tensor:
        features: Tensor = network.forward_head(network.forward_features(inputs), pre_logits=True)
        return features.flatten(1)

    return FeatureEncoder(network, embed, model.preprocessing, model.provenance())


@dataclass(frozen=True)
class FeatureOptions:
    size: int = 299
    scale: float = 255.0
    shift: float = 0.0
    sha256: str | None = None


def torchscript_features(path: str, options: FeatureOptions) -> FeatureEncoder:
    """Features of a TorchScript program: torchscript:inception.pt.

    It gets images of side `size`, values from `shift` to `shift` + `scale`; some exports of FID's Inception want 0 to 255,
    others −1 to 0.9921875, that is scale 1.9921875, shift −1.

    Such a file is a program; load only what you trust, and pin it with `sha256`.
    """
    runner = ScriptRunner(path, options.sha256, what=f"torchscript:{path}")
    side, scale, shift = options.size, options.scale, options.shift
    values = f"the options: values from {shift:g} to {shift + scale:g}"
    preprocessing = Preprocessing(
        size=(side, side), resizing="squash", mean=(0, 0, 0), std=(1, 1, 1), sized_by="the options", normalised_by=values
    )
    return FeatureEncoder(
        runner.module, lambda inputs: runner(inputs * scale + shift).flatten(1), preprocessing, runner.provenance()
    )


class FeatureEncoder(ImageEncoder):
    """A network that turns images into rows of features. It knows no words."""

    def __init__(
        self, network: Any, embed: Callable[[Tensor], Tensor], preprocessing: Preprocessing, account: dict[str, str]
    ) -> None:
        self.network, self.preprocessing = network, preprocessing
        self._embed, self._account = embed, account

    def embed_images(self, images: Tensor) -> Tensor:
        return self._embed(self.preprocessing(images))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Refuse: there is nothing to compare words with."""
        source = self._account.get("source", "the encoder")
        raise BadPart(f"{source}: gives features of images only; clip: and openclip: know words")

    def logits(self, similarity: Tensor) -> Tensor:
        return similarity

    def provenance(self) -> dict[str, str]:
        return self._account
