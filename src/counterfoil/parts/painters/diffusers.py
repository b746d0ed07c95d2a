"""Text-to-image pipelines of diffusers as painters.

Stable Diffusion 1, 2, XL and 3, Flux and whatever else diffusers' automatic class knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts.calls import in_batches
from counterfoil.parts.contracts import Painted, Trait
from counterfoil.parts.fast.unets import PlacedPipeline
from counterfoil.parts.pretrained import DTYPES, Dtype, load_pipeline, own_size

BATCH_CPU, BATCH_GPU = 1, 16  # images per call; the second is what a stage hands over


@dataclass(frozen=True)
class DiffusersOptions:
    """Options of painting; None leaves the pipeline's own value."""

    steps: int | None = None
    guidance: float | None = None
    negative: str | None = None
    size: int | None = None
    scheduler: str | None = None
    batch: int | None = None
    safety: Literal["record", "off"] = "record"
    dtype: Dtype | None = None
    compiled: bool = False
    variant: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("size", self.size), ("batch", self.batch)):
            if value is not None and value < 1:
                raise BadPart(f"painter: {name} is a whole number from 1, got {value}")

    @property
    def settings(self) -> dict[str, Any]:
        """The options that go to every call of the pipeline, by its names."""
        named = {"num_inference_steps": self.steps, "guidance_scale": self.guidance, "negative_prompt": self.negative}
        return {key: value for key, value in {**named, "height": self.size, "width": self.size}.items() if value is not None}


def diffusers_painter(name: str, options: DiffusersOptions) -> PipelinePainter:
    """A text-to-image pipeline of diffusers: diffusers:FOLDER, or diffusers:stabilityai/stable-diffusion-xl-base-1.0.

    `steps`, `guidance` and `size` are the pipeline's own unless given; `scheduler` is the name of another scheduler class, as
    in DPMSolverMultistepScheduler; `negative` is what the image shall not show. The verdict of the pipeline's safety filter is
    recorded with each image; `safety: off` leaves the filter out. `batch` images are painted at a time, by default one on
    a CPU and sixteen elsewhere. `dtype` is float32, bfloat16 or float16; by default float32 on a CPU, and on a GPU bfloat16 for
    denoiser and decoder. `compiled` compiles the denoiser on a GPU. `variant` names weights such as fp16.
    """
    from diffusers import AutoPipelineForText2Image

    pipeline = load_pipeline(
        AutoPipelineForText2Image,
        f"diffusers:{name}",
        name,
        wanted="a text-to-image pipeline",
        dtype=DTYPES[options.dtype or "float32"],
        variant=options.variant,
        revision=options.revision,
        without=("safety_checker",) if options.safety == "off" else (),
    )
    if options.scheduler is not None:
        pipeline.scheduler = _scheduler(options.scheduler, pipeline.scheduler, name)
    return PipelinePainter(pipeline, options, name=name)


class PipelinePainter:
    """Paints with a pipeline.

    Each image's noise comes from its own seed, drawn on the CPU, so that it is the same in any batch and on any device; calls
    always have the same number of rows.
    """

    def __init__(
        self, pipeline: Any, options: DiffusersOptions | None = None, *, name: str = "pipeline", made_for: str = ""
    ) -> None:
        self.options = options or DiffusersOptions()
        self.pipeline = pipeline
        self.placed = PlacedPipeline(pipeline, self.options.dtype, compiled=self.options.compiled)
        self.size = self.options.size or own_size(pipeline)
        self.name = name
        self.made_for = made_for
        self._batch = self.options.batch
        if "prompt" not in self.placed.takes:
            raise BadPart(f"diffusers:{name}: a {type(pipeline).__name__} takes no prompt; choose a text-to-image pipeline")
        unknown = next((key for key in self.options.settings if key not in self.placed.takes), None)
        if unknown is not None:
            raise BadPart(f"diffusers:{name}: a {type(pipeline).__name__} has no {unknown}; leave that option out")

    @property
    def batch(self) -> int:
        """Images per call of the pipeline."""
        return self._batch or (BATCH_CPU if self.placed.device.type == "cpu" else BATCH_GPU)

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        return self.paint_filtered(prompts, seeds).images

    @torch.no_grad()
    def paint_filtered(self, prompts: Sequence[str], seeds: Tensor) -> Painted:
        """One image per prompt, with the verdict of the pipeline's safety filter."""
        rows = list(zip(prompts, seeds.tolist(), strict=True))
        try:
            painted = in_batches(rows, self.batch, self._call, smaller=self._use_batch, what="painter")
        except torch.OutOfMemoryError:
            raise BadPart(f"diffusers:{self.name}: out of memory for one image; choose a smaller size or another dtype") from None
        return Painted(torch.stack([image for image, _ in painted]), tuple(flagged for _, flagged in painted))

    def to(self, device: torch.device | str) -> PipelinePainter:
        """The same painter, moved to a device and accelerated there as far as `dtype` and `compiled` allow."""
        self.placed.place(device)
        return self

    def describe(self) -> list[Trait]:
        size = self.size
        traits = [Trait("images", f"{size}×{size}", "the options" if self.options.size else "the weights")] if size else []
        has_filter = getattr(self.pipeline, "safety_checker", None) is not None
        traits.append(Trait("safety filter", "recorded" if has_filter else "none", f"safety: {self.options.safety}"))
        return traits

    def provenance(self) -> dict[str, str]:
        settings = ", ".join(f"{key} {value}" for key, value in sorted(self.options.settings.items()))
        return {**self.placed.provenance(), "source": self.name, "settings": settings or "the pipeline's own"}

    def _call(self, rows: list[tuple[str, int]]) -> list[tuple[Tensor, bool | None]]:
        settings = self.options.settings
        if "negative_prompt" in settings:
            settings["negative_prompt"] = [settings["negative_prompt"]] * len(rows)
        noise = [torch.Generator("cpu").manual_seed(seed) for _, seed in rows]
        made = self.placed(prompt=[prompt for prompt, _ in rows], generator=noise, **settings)
        flagged = getattr(made, "nsfw_content_detected", None)
        flags = [None] * len(rows) if flagged is None else [bool(flag) for flag in flagged]
        images = torch.as_tensor(made.images).float().clamp(0, 1).cpu()
        return list(zip(images, flags, strict=True))

    def _use_batch(self, batch: int) -> None:
        self._batch = batch


def _scheduler(name: str, current: Any, what: str) -> Any:
    import diffusers

    kind = getattr(diffusers, name, None)
    if not name.endswith("Scheduler") or kind is None or not hasattr(kind, "from_config"):
        fitting = ", ".join(sorted(each.__name__ for each in current.compatibles)[:6])
        raise BadPart(f"diffusers:{what}: no scheduler {name!r}; among those that fit are {fitting}")
    return kind.from_config(current.config)
