"""Image-to-image pipelines of diffusers as editors: InstructPix2Pix, which takes instructions, and those that repaint.

There is nothing to invert: an inversion holds the image and its seed. A pipeline that takes instructions gets one made
from the words that changed; any other gets the edited caption.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.parts import weights
from counterfoil.parts.contracts import EditResult, Inversion, Refusal, Trait
from counterfoil.parts.editors.diffusion import Precision, plain_tokens
from counterfoil.parts.editors.inversion import check_range
from counterfoil.parts.editors.requests import answer_rows, caption_fault, image_fault
from counterfoil.parts.fast import dtypes
from counterfoil.parts.fast.unets import BY_DEVICE, AcceleratedPipeline
from counterfoil.parts.pretrained import DTYPES, INDEX, load_pipeline, open_pipeline, own_size, read_config

STRENGTHS: Final = {"strength": (0.5, 0.6, 0.7, 0.8), "image_guidance_scale": (1.2, 1.5, 1.8)}
"""Default sweep of pipelines that repaint, and of those that take instructions, by the name of their option."""
_WANTED: Final = "an image-to-image pipeline"
_MAX_TOKENS: Final = 512  # of pipelines that do not say how many they read


@dataclass(frozen=True)
class InstructOptions:
    """The candidates of an edit, and how the pipeline is called."""

    sweep: float | tuple[float, ...] | None = None
    steps: int = 50
    guidance: float = 7.5
    instruction: str | None = None
    size: int | None = None
    precision: Precision | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        check_range("steps", self.steps, 1, 1000)
        check_range("guidance", self.guidance, 0, 100)
        for value in self.values or ():
            check_range("sweep", value, 0, 100)
        try:
            (self.instruction or "").format(caption="", edited="", removed="", added="")
        except (KeyError, IndexError, ValueError):
            places = "{removed}, {added}, {caption} and {edited}"
            raise BadSpec(f"instruction may use {places}, got {self.instruction!r}") from None

    @property
    def values(self) -> tuple[float, ...] | None:
        """The values of the sweep; None for the default of the pipeline's kind."""
        return tuple(self.sweep) if isinstance(self.sweep, Sequence) else None if self.sweep is None else (self.sweep,)

    @property
    def settings(self) -> dict[str, Any]:
        """The options that go to every call, by the pipeline's names."""
        return {"num_inference_steps": self.steps, "guidance_scale": self.guidance}


def instruct(name: str, options: InstructOptions) -> PipelineEditor:
    """An image-to-image pipeline of diffusers: instruct:timbrooks/instruct-pix2pix, or a folder.

    `sweep` are strengths of repainting, or image guidances of a pipeline that takes instructions. `instruction` is a text
    with {removed}, {added}, {caption} and {edited}; by default "change … to …", "add …" or "remove …" for pipelines that take
    instructions and {edited} for the others. `precision` is float32, bfloat16 or float16; by default float32 on a CPU, and on a
    GPU bfloat16 for denoiser and decoder.
    """
    from diffusers import AutoPipelineForImage2Image, DiffusionPipeline

    folder, _ = open_pipeline(f"instruct:{name}", name, wanted=_WANTED, revision=options.revision)
    takes_instructions = "Pix2Pix" in str(read_config(folder / INDEX).get("_class_name"))
    loader = DiffusionPipeline if takes_instructions else AutoPipelineForImage2Image
    dtype = DTYPES[options.precision or "float32"]
    return PipelineEditor(load_pipeline(loader, f"instruct:{name}", str(folder), wanted=_WANTED, dtype=dtype), options)


class PipelineEditor:
    """Edits with a pipeline. Each candidate's noise comes from the image's seed; images go through one at a time."""

    def __init__(self, pipeline: Any, options: InstructOptions | None = None) -> None:
        known = inspect.signature(pipeline.__call__).parameters
        option = next((name for name in reversed(STRENGTHS) if name in known), None)
        if option is None or "image" not in known:
            raise BadPart(f"a {type(pipeline).__name__} does not edit images; choose an image-to-image pipeline of diffusers")
        self.pipeline = pipeline
        self.options = options or InstructOptions()
        self.strength_option = option
        self.values = self.options.values or STRENGTHS[option]
        self.instruction = self.options.instruction or ("" if option == "image_guidance_scale" else "{edited}")
        self.sweep = tuple(f"{option}={value:g}" for value in self.values)
        self.size: int | None = self.options.size or own_size(pipeline)
        self._fast: AcceleratedPipeline | None = None
        pipeline.set_progress_bar_config(disable=True)

    def to(self, device: str | torch.device) -> PipelineEditor:
        """The same editor on another device, in the precision that suits it unless another was asked for."""
        if self._fast is not None:
            self._fast.undo()
            self._fast = None
        dtype = dtypes.dtype_for(self.options.precision, torch.device(device))
        if self.options.precision is None and dtype != torch.float32:
            self._fast = AcceleratedPipeline(self.pipeline, dtype, device=torch.device(device))
        self.pipeline.to(device)
        return self

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        """Images with their seeds; nothing has to be found."""
        rows = list(zip(images, captions, [int(seed) for seed in seeds], strict=True))
        return answer_rows(rows, self._image_fault, self._keep, batch=1)

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        """The images repainted, a candidate for every value of the sweep."""
        return answer_rows(list(zip(inversions, edited, strict=True)), self._edit_fault, self._edit, batch=1)

    def describe(self) -> list[Trait]:
        """The size it works at."""
        if self.size is None:
            return [Trait("images", "any size", "the pipeline")]
        decided = "the options" if self.options.size else "the weights"
        return [Trait("images", f"{self.size}×{self.size}; larger ones are shrunk to it", decided)]

    def provenance(self) -> dict[str, Any]:
        """Hashes of the weights and the settings."""
        networks = {name: part for name, part in self.pipeline.components.items() if isinstance(part, torch.nn.Module)}
        settings = {"pipeline": type(self.pipeline).__name__, **self.options.settings, "instruction": self.instruction}
        with contextlib.nullcontext() if self._fast is None else self._fast.originals():
            hashes = {name: weights.fingerprint(part) for name, part in networks.items()}
        return {**hashes, "settings": settings, "precision": self.options.precision or BY_DEVICE}

    def _keep(self, some: list[tuple[Tensor, str, int]]) -> list[Inversion | Refusal]:
        return [Inversion(caption, {"image": image.float().cpu(), "seed": torch.tensor(seed)}) for image, caption, seed in some]

    @torch.no_grad()
    def _edit(self, some: list[tuple[Inversion, str]]) -> list[EditResult | Refusal]:
        ((inversion, edited),) = some
        image, prompt = inversion.tensors["image"], self._prompt(inversion.caption, edited)
        made = []
        for value in self.values:
            noise = torch.Generator("cpu").manual_seed(int(inversion.tensors["seed"]) % 2**63)
            options = {**self.options.settings, self.strength_option: value}
            answer = self.pipeline(prompt=prompt, image=image[None], generator=noise, output_type="pt", **options)
            if any(getattr(answer, "nsfw_content_detected", None) or ()):
                return [Refusal("the pipeline's safety filter withheld the edited image")]
            made.append(torch.as_tensor(answer.images).float().cpu())
        candidates = torch.cat(made)
        if not bool(torch.isfinite(candidates).all()):
            return [Refusal("the diffusion gave values that are not numbers while redrawing")]
        return [EditResult(candidates.clamp(0, 1), self._reconstruction(image))]

    def _reconstruction(self, image: Tensor) -> Tensor:
        """The image as the pipeline's autoencoder passes it on."""
        vae = self.pipeline.vae
        found = vae.encode((image[None] * 2 - 1).to(device=vae.device, dtype=vae.dtype))
        latents = found.latent_dist.mode() if hasattr(found, "latent_dist") else found.latents
        decoded: Tensor = vae.decode(latents, return_dict=False)[0][0]
        return (decoded / 2 + 0.5).clamp(0, 1).float().cpu()

    def _prompt(self, caption: str, edited: str) -> str:
        removed, added = difference(caption, edited)
        if self.instruction:
            return self.instruction.format(caption=caption, edited=edited, removed=removed, added=added)
        if removed and added:
            return f"change {removed} to {added}"
        return f"add {added}" if added else f"remove {removed}" if removed else edited

    def _image_fault(self, row: tuple[Tensor, str, int]) -> str | None:
        image, caption, _ = row
        side = self.size or (int(image.shape[-1]) if image.dim() == 3 else 0)
        return image_fault(image, side) or self._caption_fault(caption, "the caption")

    def _edit_fault(self, row: tuple[Inversion, str]) -> str | None:
        inversion, edited = row
        if set(inversion.tensors) != {"image", "seed"}:
            return f"the inversion holds {sorted(inversion.tensors)}, not image and seed; invert the image again"
        return self._caption_fault(edited, "the edited caption") or self._caption_fault(
            self._prompt(inversion.caption, edited), "the instruction"
        )

    def _caption_fault(self, text: str, what: str) -> str | None:
        tokenizer = getattr(self.pipeline, "tokenizer", None)
        if tokenizer is None:
            return None if text.split() else f"{what} is empty"
        longest = min(int(tokenizer.model_max_length), _MAX_TOKENS)
        return caption_fault(text, lambda part: plain_tokens(tokenizer, part), longest=longest, what=what)


def difference(caption: str, edited: str) -> tuple[str, str]:
    """The words removed and the words added, each from the first changed word to the last."""
    before, after = caption.split(), edited.split()
    changes = [part for part in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes() if part[0] != "equal"]
    if not changes:
        return "", ""
    (_, i1, _, j1, _), (_, _, i2, _, j2) = changes[0], changes[-1]
    return " ".join(before[i1:i2]), " ".join(after[j1:j2])
