"""Image-to-image pipelines of diffusers as editors: InstructPix2Pix, which is told what to change, and those that repaint.

There is nothing to invert: an inversion holds the picture and its seed. A pipeline that takes instructions gets one made
from the words that changed; any other gets the edited caption.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec
from counterfoil.core.tables import read_json
from counterfoil.parts import weights
from counterfoil.parts.contracts import EditResult, Inversion, Refusal
from counterfoil.parts.diffusers_loading import INDEX
from counterfoil.parts.editors import rows
from counterfoil.parts.editors.answers import answered
from counterfoil.parts.editors.diffusion import PRECISIONS, plain_tokens
from counterfoil.parts.editors.settings import shares
from counterfoil.parts.fast import dtypes
from counterfoil.parts.fast.pipelines import BY_DEVICE, HastenedPipeline
from counterfoil.parts.pipelines import load_pipeline, open_pipeline

KNOBS = {"strength": (0.5, 0.6, 0.7, 0.8), "image_guidance_scale": (1.2, 1.5, 1.8)}
"""What the sweep turns in pipelines that repaint, and in those that are told what to change."""
WANTED = "an image-to-image pipeline"
_LONGEST_ELSEWHERE = 512  # tokens of pipelines that do not say how many they read


def instruct(
    name: str,
    *,
    sweep: float | Sequence[float] | None = None,
    steps: int = 50,
    guidance: float = 7.5,
    instruction: str | None = None,
    size: int | None = None,
    precision: str | None = None,
    revision: str | None = None,
) -> PipelineEditor:
    """An image-to-image pipeline of diffusers: instruct:timbrooks/instruct-pix2pix, or a folder.

    `sweep` are strengths of repainting, or image guidances of a pipeline that takes instructions. `instruction` is a text
    with {removed}, {added}, {caption} and {edited}; by default "change … to …", "add …" or "remove …" for pipelines that take
    instructions and {edited} for the others. `precision` is float32, bfloat16 or float16; by default float32 on a CPU, and on a
    GPU bfloat16 for denoiser and decoder.
    """
    if not name:
        raise BadPart("instruct: name a folder or a hub repository, as in instruct:timbrooks/instruct-pix2pix")
    if precision not in (None, *PRECISIONS):
        raise BadSpec(f"instruct:{name}: precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    pipeline = _load(name, dtype=getattr(torch, precision or "float32"), revision=revision)
    values = None if sweep is None else shares(sweep, name="sweep")
    return PipelineEditor(
        pipeline,
        sweep=values,
        settings={"num_inference_steps": steps, "guidance_scale": guidance},
        instruction=instruction,
        size=size,
        precision=precision,
    )


class PipelineEditor:
    """Edits with a pipeline. Each candidate's noise comes from the picture's seed; pictures go through one at a time."""

    def __init__(
        self,
        pipeline: Any,
        *,
        sweep: Sequence[float] | None = None,
        settings: dict[str, Any] | None = None,
        instruction: str | None = None,
        size: int | None = None,
        precision: str | None = None,
    ) -> None:
        known = inspect.signature(pipeline.__call__).parameters
        self.knob = next((knob for knob in reversed(KNOBS) if knob in known), None)
        if self.knob is None or "image" not in known:
            raise BadPart(f"a {type(pipeline).__name__} does not edit pictures; choose an image-to-image pipeline of diffusers")
        self.pipeline = pipeline
        self.values = tuple(sweep) if sweep is not None else KNOBS[self.knob]
        self.settings = dict(settings or {})
        self.instruction = instruction or ("" if self.knob == "image_guidance_scale" else "{edited}")
        self.sweep = tuple(f"{self.knob}={value:g}" for value in self.values)
        self.size: int | None = size or _own_size(pipeline)
        self.precision = precision
        self._hastened: HastenedPipeline | None = None
        _check_template(self.instruction)
        pipeline.set_progress_bar_config(disable=True)

    def to(self, device: str | torch.device) -> PipelineEditor:
        """The same editor on another device, in the precision that it likes unless another was asked for."""
        if self._hastened is not None:
            self._hastened.undo()
            self._hastened = None
        kind = dtypes.dtype_for(self.precision, torch.device(device))
        if self.precision is None and kind != torch.float32:
            self._hastened = HastenedPipeline(self.pipeline, kind, device=torch.device(device))
        self.pipeline.to(device)
        return self

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        """Pictures with their seeds; nothing has to be found."""
        asked = list(zip(images, captions, [int(seed) for seed in seeds], strict=True))
        return answered(asked, self._picture_fault, self._keep, at_a_time=1)

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        """The pictures repainted, a candidate for every value of the sweep."""
        return answered(list(zip(inversions, edited, strict=True)), self._edit_fault, self._edit, at_a_time=1)

    def provenance(self) -> dict[str, Any]:
        """Hashes of the weights and the settings."""
        networks = {name: part for name, part in self.pipeline.components.items() if isinstance(part, torch.nn.Module)}
        settings = {"pipeline": type(self.pipeline).__name__, **self.settings, "instruction": self.instruction}
        with contextlib.nullcontext() if self._hastened is None else self._hastened.originals():
            marks = {name: weights.fingerprint(part) for name, part in networks.items()}
        return {**marks, "settings": settings, "precision": self.precision or BY_DEVICE}

    def _keep(self, some: list[tuple[Tensor, str, int]]) -> list[Inversion | Refusal]:
        return [Inversion(caption, {"image": image.float().cpu(), "seed": torch.tensor(seed)}) for image, caption, seed in some]

    @torch.no_grad()
    def _edit(self, some: list[tuple[Inversion, str]]) -> list[EditResult | Refusal]:
        ((inversion, edited),) = some
        image, prompt = inversion.tensors["image"], self._prompt(inversion.caption, edited)
        made = []
        for value in self.values:
            noise = torch.Generator("cpu").manual_seed(int(inversion.tensors["seed"]) % 2**63)
            answer = self.pipeline(
                prompt=prompt, image=image[None], generator=noise, output_type="pt", **self.settings, **{str(self.knob): value}
            )
            if any(getattr(answer, "nsfw_content_detected", None) or ()):
                return [Refusal("the pipeline's safety filter hid the edited picture")]
            made.append(torch.as_tensor(answer.images).float().cpu())
        candidates = torch.cat(made)
        if not bool(torch.isfinite(candidates).all()):
            return [Refusal("the diffusion gave values that are not numbers while redrawing")]
        return [EditResult(candidates.clamp(0, 1), self._reconstruction(image))]

    def _reconstruction(self, image: Tensor) -> Tensor:
        """What is left of the picture after the pipeline's autoencoder."""
        vae = self.pipeline.vae
        found = vae.encode((image[None] * 2 - 1).to(device=vae.device, dtype=vae.dtype))
        latents = found.latent_dist.mode() if hasattr(found, "latent_dist") else found.latents
        picture: Tensor = vae.decode(latents, return_dict=False)[0][0]
        return (picture / 2 + 0.5).clamp(0, 1).float().cpu()

    def _prompt(self, caption: str, edited: str) -> str:
        removed, added = difference(caption, edited)
        if self.instruction:
            return self.instruction.format(caption=caption, edited=edited, removed=removed, added=added)
        if removed and added:
            return f"change {removed} to {added}"
        return f"add {added}" if added else f"remove {removed}" if removed else edited

    def _picture_fault(self, row: tuple[Tensor, str, int]) -> str | None:
        image, caption, _ = row
        side = self.size or (int(image.shape[-1]) if image.dim() == 3 else 0)
        return rows.picture_fault(image, side) or self._caption_fault(caption, "the caption")

    def _edit_fault(self, row: tuple[Inversion, str]) -> str | None:
        inversion, edited = row
        if set(inversion.tensors) != {"image", "seed"}:
            return f"the inversion holds {sorted(inversion.tensors)}, not image and seed; invert the picture again"
        return self._caption_fault(edited, "the edited caption") or self._caption_fault(
            self._prompt(inversion.caption, edited), "the instruction"
        )

    def _caption_fault(self, text: str, what: str) -> str | None:
        tokenizer = getattr(self.pipeline, "tokenizer", None)
        if tokenizer is None:
            return None if text.split() else f"{what} is empty"
        longest = min(int(tokenizer.model_max_length), _LONGEST_ELSEWHERE)
        return rows.caption_fault(text, lambda part: plain_tokens(tokenizer, part), longest=longest, what=what)


def difference(caption: str, edited: str) -> tuple[str, str]:
    """The words that went and those that came, each from the first changed word to the last."""
    before, after = caption.split(), edited.split()
    changes = [part for part in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes() if part[0] != "equal"]
    if not changes:
        return "", ""
    (_, i1, _, j1, _), (_, _, i2, _, j2) = changes[0], changes[-1]
    return " ".join(before[i1:i2]), " ".join(after[j1:j2])


def _check_template(template: str) -> None:
    try:
        template.format(caption="", edited="", removed="", added="")
    except (KeyError, IndexError, ValueError):
        raise BadSpec(f"instruction may use {{removed}}, {{added}}, {{caption}} and {{edited}}, got {template!r}") from None


def _own_size(pipeline: Any) -> int | None:
    network = getattr(pipeline, "unet", None) or getattr(pipeline, "transformer", None)
    side = getattr(getattr(network, "config", None), "sample_size", None)
    return int(side) * int(pipeline.vae_scale_factor) if isinstance(side, int) else None


def _load(name: str, *, dtype: torch.dtype, revision: str | None) -> Any:
    from diffusers import AutoPipelineForImage2Image, DiffusionPipeline

    folder, _ = open_pipeline(f"instruct:{name}", name, wanted=WANTED, revision=revision)
    takes_instructions = "Pix2Pix" in str(read_json(folder / INDEX).get("_class_name"))
    loader = DiffusionPipeline if takes_instructions else AutoPipelineForImage2Image
    return load_pipeline(loader, f"instruct:{name}", str(folder), wanted=WANTED, dtype=dtype)
