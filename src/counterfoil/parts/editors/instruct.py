"""Image-to-image pipelines of diffusers as editors: those that repaint, and those that follow instructions.

A pipeline's arguments say which it is: `strength` is for repainting, `image_guidance_scale` is InstructPix2Pix's, and one that
takes an image and a prompt alone is an instruction pipeline of today, such as FLUX Kontext, FLUX.2 klein or Qwen-Image-Edit.
There is nothing to invert: an inversion holds the image and its seed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal, Self

import torch
from PIL import Image
from torch import Tensor

from counterfoil.core.errors import BadPart, BadSpec, one_line
from counterfoil.parts.contracts import EditResult, Inversion, Refusal, Trait
from counterfoil.parts.editors.diffusion import Precision
from counterfoil.parts.editors.inversion import check_range
from counterfoil.parts.editors.requests import RowEditor
from counterfoil.parts.fast.unets import PlacedPipeline
from counterfoil.parts.images import to_uint8
from counterfoil.parts.pretrained import DTYPES, INDEX, load_pipeline, open_pipeline, own_size, read_config

SWEEPS: Final[Mapping[str, tuple[float, ...]]] = {
    "image_guidance_scale": (1.2, 1.5, 1.8),
    "strength": (0.5, 0.6, 0.7, 0.8),
    "seed": (0, 1, 2),
}
"""The values that are tried by default, by what they turn; a pipeline sweeps over the first of these that it takes."""
_FOREIGN: Final = ("mask_image", "control_image", "control_mask", "video", "num_frames")  # arguments of other kinds of pipelines
_WANTED: Final = "an image-to-image pipeline"
_DISTILLED_STEPS: Final = 4


@dataclass(frozen=True)
class InstructOptions:
    """The candidates of an edit, and how the pipeline is called; None leaves what the pipeline has by itself."""

    sweep: float | tuple[float, ...] | None = None
    sweep_by: Literal["seed", "guidance"] | None = None
    steps: int | None = None
    guidance: float | None = None
    instruction: str | None = None
    size: int | None = None
    precision: Precision | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_range("steps", self.steps, 1, 1000)
        if self.guidance is not None:
            check_range("guidance", self.guidance, 0, 100)
        for value in self.values or ():
            check_range("sweep", value, 0, 100)
        if self.sweep_by == "guidance" and not self.values:
            raise BadSpec("sweep_by guidance needs the guidances to try, as in sweep=[2.5, 4]")
        try:
            (self.instruction or "").format(caption="", edited="", removed="", added="")
        except (KeyError, IndexError, ValueError):
            places = "{removed}, {added}, {caption} and {edited}"
            raise BadSpec(f"instruction may use {places}, got {self.instruction!r}") from None

    @property
    def values(self) -> tuple[float, ...] | None:
        """The values of the sweep; None for the default of the pipeline's kind."""
        return tuple(self.sweep) if isinstance(self.sweep, Sequence) else None if self.sweep is None else (self.sweep,)


def instruct(name: str, options: InstructOptions) -> PipelineEditor:
    """A pipeline of diffusers that edits an image: instruct:black-forest-labs/FLUX.2-klein-4B (0.3 s, 16 GiB), or a folder.

    `sweep` are the values that are tried: strengths of a pipeline that repaints, image guidances of InstructPix2Pix, seeds of
    other pipelines that follow instructions; `sweep_by` chooses seed or guidance instead. `instruction` is a text with
    {removed}, {added}, {caption} and {edited}; by default "change … to …", "add …" or "remove …" where instructions are
    followed and {edited} elsewhere. `steps`, `guidance` and `size` are the pipeline's own unless given. `precision` is float32,
    bfloat16 or float16; by default float32 on a CPU, and on a GPU bfloat16 for denoiser and decoder. Time and memory are of an
    edit at 512 px on an H200.
    """
    import diffusers
    from diffusers import AutoPipelineForImage2Image, DiffusionPipeline

    folder, _ = open_pipeline(f"instruct:{name}", name, wanted=_WANTED, revision=options.revision)
    kind = getattr(diffusers, str(read_config(folder / INDEX).get("_class_name")), None)
    edits = kind is not None and "image" in inspect.signature(kind.__call__).parameters
    loader = DiffusionPipeline if edits else AutoPipelineForImage2Image
    dtype = DTYPES[options.precision or "float32"]
    return PipelineEditor(load_pipeline(loader, f"instruct:{name}", str(folder), wanted=_WANTED, dtype=dtype), options)


class PixelEditor(RowEditor):
    """An editor that starts from the image itself: an inversion holds the image and its seed. One image at a time."""

    def __init__(self, pipeline: Any, *, size: int | None, precision: str | None) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.placed = PlacedPipeline(pipeline, precision)
        self.size = size or own_size(pipeline)
        self._size_given = size is not None
        # Of several text encoders the last reads the longest texts.
        tokenizers = [getattr(pipeline, f"tokenizer{end}", None) for end in ("_3", "_2", "")]
        self.tokenizer = next((each for each in tokenizers if each is not None), None)
        own = getattr(self.placed.takes.get("max_sequence_length"), "default", None) or self.longest
        self.longest = min(int(getattr(self.tokenizer, "model_max_length", own)), own)

    def to(self, device: str | torch.device) -> Self:
        """The same editor on another device, in the precision that suits it unless another was asked for."""
        self.placed.place(device)
        return self

    def describe(self) -> list[Trait]:
        if self.size is None:
            return [Trait("images", "any size", "the pipeline")]
        decided = "the options" if self._size_given else "the weights"
        return [Trait("images", f"{self.size}×{self.size}; larger ones are shrunk to it", decided)]

    def _invert(self, some: list[tuple[Tensor, str, int]]) -> list[Inversion | Refusal]:
        return [Inversion(caption, {"image": image.float().cpu(), "seed": torch.tensor(seed)}) for image, caption, seed in some]

    def _inversion_fault(self, inversion: Inversion) -> str | None:
        return None if set(inversion.tensors) == {"image", "seed"} else f"{sorted(inversion.tensors)}, not image and seed"

    @torch.no_grad()
    def _edit(self, some: list[tuple[Inversion, str]]) -> list[EditResult | Refusal]:
        ((inversion, edited),) = some
        image, seed = inversion.tensors["image"], int(inversion.tensors["seed"])
        found = self._candidates(image, inversion.caption, edited, seed)
        if isinstance(found, Refusal):
            return [found]
        if not all(bool(torch.isfinite(each).all()) for each in found):
            return [Refusal("the diffusion gave values that are not numbers while redrawing")]
        drawn = [_fit(each.float().cpu(), image.shape[-2:]) for each in (*found, self._reconstruct(image))]
        return [EditResult(torch.stack(drawn[:-1]), drawn[-1])]

    def _candidates(self, image: Tensor, caption: str, edited: str, seed: int) -> list[Tensor] | Refusal:
        """The edited images, one for each setting of the sweep."""
        raise NotImplementedError

    def encode(self, image: Tensor) -> Tensor:
        """The autoencoder's latents of an image, as it gives them."""
        vae = self.pipeline.vae
        pixels = (image[None] * 2 - 1).to(device=vae.device, dtype=vae.dtype)
        is_video = any(each.dim() == 5 for each in vae.parameters())  # Qwen's autoencoder takes an image as a film of one
        found = vae.encode(pixels[:, :, None] if is_video else pixels)
        return found.latent_dist.mode() if hasattr(found, "latent_dist") else found.latents  # type: ignore[no-any-return]

    def decode(self, latents: Tensor) -> Tensor:
        """The image of latents."""
        decoded: Tensor = self.pipeline.vae.decode(latents.to(self.pipeline.vae.dtype), return_dict=False)[0][0]
        return ((decoded[:, 0] if decoded.dim() == 4 else decoded) / 2 + 0.5).clamp(0, 1)

    def _reconstruct(self, image: Tensor) -> Tensor:
        """The image as the pipeline's autoencoder passes it on."""
        return self.decode(self.encode(image))


def _fit(image: Tensor, shape: Sequence[int]) -> Tensor:
    """The image at the source's size, if the pipeline has chosen another."""
    if image.shape[-2:] != torch.Size(shape):
        image = torch.nn.functional.interpolate(image[None], tuple(shape), mode="bicubic", antialias=True)[0]
    return image.clamp(0, 1)


class PipelineEditor(PixelEditor):
    """Edits with a pipeline."""

    def __init__(self, pipeline: Any, options: InstructOptions | None = None) -> None:
        self.options = options or InstructOptions()
        super().__init__(pipeline, size=self.options.size, precision=self.options.precision)
        takes, what = self.placed.takes, type(pipeline).__name__
        if not {"image", "prompt"} <= set(takes) or set(_FOREIGN) & set(takes):
            raise BadPart(f"a {what} does not edit images; choose an image-to-image pipeline of diffusers")
        own = next(name for name in SWEEPS if name in takes or name == "seed")
        self.of_today = own == "seed"
        # Where guidance_scale has no value by itself, as with Qwen, classifier-free guidance goes by another name.
        named = getattr(takes.get("guidance_scale"), "default", None) is None and "true_cfg_scale" in takes
        self.guidance = "true_cfg_scale" if named else "guidance_scale"
        self.swept = self.guidance if self.options.sweep_by == "guidance" else self.options.sweep_by or own
        if self.swept not in takes and self.swept != "seed":
            raise BadPart(f"a {what} has no {self.swept} to sweep over; leave sweep_by out")
        self.values = self.options.values or SWEEPS[self.swept]
        self.sweep = tuple(f"{self.swept}={value:g}" for value in self.values)
        self.instruction = self.options.instruction or ("{edited}" if own == "strength" else "")

    def provenance(self) -> dict[str, Any]:
        return {**self.placed.provenance(), "settings": {**self._settings(), "instruction": self.instruction}}

    def _settings(self) -> dict[str, Any]:
        """The arguments of every call, by the pipeline's names."""
        steps, guidance = self.options.steps, self.options.guidance
        if getattr(self.pipeline.config, "is_distilled", False):  # to a few steps without guidance
            steps, guidance = steps or _DISTILLED_STEPS, guidance or 1.0
        wanted = {
            "num_inference_steps": steps,
            self.guidance: guidance,
            "negative_prompt": " " if self.guidance == "true_cfg_scale" else None,
        }
        if self.of_today:
            side = self.size
            wanted |= {"height": side, "width": side, "max_area": side and side**2, "_auto_resize": False if side else None}
        return {name: value for name, value in wanted.items() if value is not None and name in self.placed.takes}

    def _candidates(self, image: Tensor, caption: str, edited: str, seed: int) -> list[Tensor] | Refusal:
        settings, made = {"prompt": self._prompt(caption, edited), **self._settings()}, []
        given = Image.fromarray(to_uint8(image)) if self.of_today else image[None]
        for value in self.values:
            shift = int(value) if self.swept == "seed" else 0
            swept = {} if self.swept == "seed" else {self.swept: value}
            noise = torch.Generator("cpu").manual_seed((seed + shift) % 2**63)
            try:
                answer = self.placed(image=given, generator=noise, **{**settings, **swept})
            except ValueError as error:  # of a size that it does not take, for example
                return Refusal(f"the pipeline: {one_line(error)}")
            if any(getattr(answer, "nsfw_content_detected", None) or ()):
                return Refusal("the pipeline's safety filter withheld the edited image")
            made.append(torch.as_tensor(answer.images)[0])
        return made

    def _prompt(self, caption: str, edited: str) -> str:
        removed, added = difference(caption, edited)
        if self.instruction:
            return self.instruction.format(caption=caption, edited=edited, removed=removed, added=added)
        if removed and added:
            return f"change {removed} to {added}"
        return f"add {added}" if added else f"remove {removed}" if removed else edited

    def _edit_fault(self, row: tuple[Inversion, str]) -> str | None:
        return super()._edit_fault(row) or self._text_fault(self._prompt(row[0].caption, row[1]), "the instruction")


def difference(caption: str, edited: str) -> tuple[str, str]:
    """The words removed and the words added, each from the first changed word to the last."""
    before, after = caption.split(), edited.split()
    changes = [part for part in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes() if part[0] != "equal"]
    if not changes:
        return "", ""
    (_, i1, _, j1, _), (_, _, i2, _, j2) = changes[0], changes[-1]
    return " ".join(before[i1:i2]), " ".join(after[j1:j2])
