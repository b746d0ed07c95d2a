"""Any text-to-image pipeline of diffusers as a painter: Stable Diffusion 1, 2, XL and 3, Flux and whatever else its automatic
class knows."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.engine.transfers import fetched
from counterfoil.parts import diffusers_loading, weights
from counterfoil.parts.fast import cards
from counterfoil.parts.fast.pipelines import BY_DEVICE, HastenedPipeline
from counterfoil.parts.fast.settings import Acceleration
from counterfoil.parts.painters.painted import Painted
from counterfoil.parts.pretrained import DTYPES

log = logging.getLogger(__name__)

BATCH_CPU, BATCH_GPU = 1, 16  # pictures at a time; the second is what a stage hands over
Safety = Literal["record", "off"]


def diffusers_painter(
    name: str,
    *,
    steps: int | None = None,
    guidance: float | None = None,
    negative: str | None = None,
    size: int | None = None,
    scheduler: str | None = None,
    batch: int | None = None,
    safety: Safety = "record",
    dtype: str | None = None,
    compiled: bool = False,
    variant: str | None = None,
    revision: str | None = None,
) -> PipelinePainter:
    """A text-to-image pipeline of diffusers: diffusers:FOLDER, or diffusers:stabilityai/stable-diffusion-xl-base-1.0.

    `steps`, `guidance` and `size` are the pipeline's own unless given; `scheduler` is the name of another scheduler class, as
    in DPMSolverMultistepScheduler; `negative` is what the picture shall not show. What the pipeline's safety filter says is
    recorded with each picture; `safety: off` leaves the filter out. `batch` pictures are painted at a time, by default one on
    a CPU and sixteen elsewhere. `dtype` is float32, bfloat16 or float16; by default float32 on a CPU, and on a GPU bfloat16 for
    denoiser and decoder. `compiled` compiles the denoiser on a GPU. `variant` names weights such as fp16.
    """
    if not name:
        raise BadPart("diffusers: name a folder or a hub repository, as in diffusers:stabilityai/stable-diffusion-xl-base-1.0")
    if dtype not in (None, *DTYPES) or safety not in get_args(Safety):
        known = f"dtype is one of {', '.join(DTYPES)} and safety one of {', '.join(get_args(Safety))}"
        raise BadPart(f"diffusers:{name}: {known}, got {dtype!r} and {safety!r}")
    pipeline = _load(name, dtype=DTYPES[dtype or "float32"], variant=variant, revision=revision, safety=safety)
    if scheduler is not None:
        pipeline.scheduler = _scheduler(scheduler, pipeline.scheduler, name)
    settings = {"num_inference_steps": steps, "guidance_scale": guidance, "negative_prompt": negative, "size": size}
    chosen = {key: value for key, value in settings.items() if value is not None}
    return PipelinePainter(pipeline, chosen, batch=batch, dtype=dtype, compiled=compiled, name=name)


class PipelinePainter:
    """Paints with a pipeline. Each picture's noise comes from its own seed, drawn on the CPU, so that it is the same in any
    batch and on any device; calls always have the same number of rows."""

    def __init__(
        self,
        pipeline: Any,
        settings: Mapping[str, Any],
        *,
        batch: int | None = None,
        dtype: str | None = None,
        compiled: bool = False,
        name: str = "pipeline",
    ) -> None:
        if batch is not None and batch < 1:
            raise BadPart(f"diffusers:{name}: batch is the number of pictures painted at a time, at least 1, got {batch}")
        self.pipeline = pipeline
        self.name = name
        self.dtype = dtype
        self._batch, self._compiled = batch, compiled
        self._hastened: HastenedPipeline | None = None
        known = inspect.signature(pipeline.__call__).parameters
        if "prompt" not in known:
            raise BadPart(f"diffusers:{name}: a {type(pipeline).__name__} takes no prompt; choose a text-to-image pipeline")
        side = settings.get("size")
        self.settings = {key: value for key, value in settings.items() if key != "size"}
        self.settings |= {"height": side, "width": side} if side else {}
        strange = next((key for key in self.settings if key not in known), None)
        if strange is not None:
            raise BadPart(f"diffusers:{name}: a {type(pipeline).__name__} has no {strange}; leave that option out")
        pipeline.set_progress_bar_config(disable=True)

    @property
    def batch(self) -> int:
        """Pictures painted at a time."""
        return self._batch or (BATCH_CPU if self._device.type == "cpu" else BATCH_GPU)

    @property
    def _device(self) -> torch.device:
        return torch.device(self.pipeline.device)

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        """One picture a prompt.  # (N, 3, H, W)"""
        return self.paint_filtered(prompts, seeds).images

    @torch.no_grad()
    def paint_filtered(self, prompts: Sequence[str], seeds: Tensor) -> Painted:
        """One picture a prompt, with what the pipeline's safety filter found."""
        pictures: list[Tensor] = []
        flags: list[bool | None] = []
        numbers = seeds.tolist()
        while len(flags) < len(prompts):
            start, batch = len(flags), self.batch
            some, seed = list(prompts[start : start + batch]), numbers[start : start + batch]
            missing = batch - len(some)
            try:
                # Idle rows, so that every call has the same shape: another batch size may round differently.
                found = self._call(some + some[-1:] * missing, seed + seed[-1:] * missing)
            except torch.OutOfMemoryError:
                self._halve(batch)
                continue
            pictures.append(found.images[: len(some)])
            flags += found.flagged[: len(some)]
        return Painted(torch.cat(pictures), tuple(flags))

    def to(self, device: torch.device | str) -> PipelinePainter:
        """The same painter, moved to a device and made as fast there as `dtype` and `compiled` allow."""
        target = torch.device(device)
        if self._hastened is not None:
            self._hastened.undo()
            self._hastened = None
        kind = cards.kind(self.dtype, target)
        if target.type == "cuda" and kind != torch.float32:
            self._hastened = HastenedPipeline(self.pipeline, kind, device=target, compiled=self._compiled)
        self.pipeline.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """Library, source, settings and the weights of every network."""
        import diffusers

        networks = {name: part for name, part in self.pipeline.components.items() if isinstance(part, torch.nn.Module)}
        with contextlib.nullcontext() if self._hastened is None else self._hastened.originals():
            marks = {f"weights {name}": weights.fingerprint(part) for name, part in sorted(networks.items())}
        scheduler = f"{type(self.pipeline.scheduler).__name__}"
        settings = ", ".join(f"{key} {value}" for key, value in sorted(self.settings.items())) or "the pipeline's own"
        return {
            "library": f"diffusers {diffusers.__version__}",
            "source": self.name,
            "pipeline": type(self.pipeline).__name__,
            "scheduler": scheduler,
            "settings": settings,
            "precision": self.dtype or BY_DEVICE,
            **marks,
        }

    def _call(self, prompts: list[str], seeds: list[int]) -> Painted:
        noise = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        settings = dict(self.settings)
        if "negative_prompt" in settings:
            settings["negative_prompt"] = [settings["negative_prompt"]] * len(prompts)
        how = Acceleration("float32" if self.dtype == "float32" else "bf16")
        with how.numbers(self._device, half=False):
            made = self.pipeline(prompt=prompts, generator=noise, output_type="pt", **settings)
        flagged = getattr(made, "nsfw_content_detected", None)
        flags = (None,) * len(prompts) if flagged is None else tuple(bool(flag) for flag in flagged)
        (images,) = fetched([torch.as_tensor(made.images).float().clamp(0, 1)])()
        return Painted(images, flags)

    def _halve(self, batch: int) -> None:
        if batch == 1:
            raise BadPart(
                f"diffusers:{self.name}: memory does not suffice for one picture; choose a smaller size or another dtype"
            )
        self._batch = batch // 2
        torch.cuda.empty_cache()
        log.warning("painter: memory ran out with %d pictures at a time; going on with %d", batch, self._batch)


def _load(name: str, *, dtype: torch.dtype, variant: str | None, revision: str | None, safety: Safety) -> Any:
    from diffusers import AutoPipelineForText2Image

    folder = weights.local_folder(name)
    if folder is not None and not (folder / diffusers_loading.INDEX).is_file():
        raise BadWeights(f"diffusers:{name}: the folder has no {diffusers_loading.INDEX}; save the pipeline with save_pretrained")
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}  # never a pickle
    options |= {key: value for key, value in (("variant", variant), ("revision", revision)) if value is not None}
    if safety == "off":
        options |= {"safety_checker": None, "requires_safety_checker": False}
    with diffusers_loading.loading(f"diffusers:{name}", folder, wanted="a text-to-image pipeline"):
        pipeline = AutoPipelineForText2Image.from_pretrained(str(folder or name), **options)
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            if dtype == torch.float32 and any(value.dtype != dtype for value in part.parameters()):
                part.float()  # an older library that knows the option by another name loads them as they are stored
            part.eval().requires_grad_(False)
    return pipeline


def _scheduler(name: str, current: Any, what: str) -> Any:
    import diffusers

    kind = getattr(diffusers, name, None)
    if not name.endswith("Scheduler") or kind is None or not hasattr(kind, "from_config"):
        fitting = ", ".join(sorted(each.__name__ for each in current.compatibles)[:6])
        raise BadPart(f"diffusers:{what}: no scheduler {name!r}; among those that fit are {fitting}")
    return kind.from_config(current.config)
