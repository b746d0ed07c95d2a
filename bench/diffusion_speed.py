"""Images per second of the painter, the editor and the diffusion generator against straightforward ways, in one run.

    python -m bench.diffusion_speed [--device cuda] [--rows "painter; editor"] [--profile] [--tiny] [--keep NAME]

Painter and editor: Stable Diffusion 1.4's architecture at 512 pixels, 50 DDIM steps, guidance 7.5. Generator: the UNet2DModel of
DDPM at 256 pixels, ten levels of guided denoising, the loss a weighted sum of the pixels. All weights are random. Straightforward
are the pipeline call of diffusers, and loops over its modules written from the papers (bench/plain.py).

Editing an image is null-text inversion, without early stop, and five edits with a sweep of five, as LANCE has them by default.
Steps that cost the same are not all made: the fitting is timed for the first few of the 50, the inversion of the straightforward
way for ten of them, its redrawing for one candidate of 25. What is made is scaled to the whole.

Operations are counted by torch's counter for one row of a call, and are those that a way really does: candidates that are still
one image count once. The limit is that of large bf16 matrix products in the same run. Rows are kept as they come.
--rows takes names or parts of them, and runs them in that order. Compiling takes a minute a row; the generator is only compiled
when that row is named.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from bench.plain import PlainEditor, climb
from bench.results import add_keep, command, keep
from bench.setup import clear, matmul_limit, measure, profile
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench import setup as sd
from counterfoil.engine.fast import Acceleration
from counterfoil.parts.contracts import EditResult, Inversion, Refusal
from counterfoil.parts.editors.diffusion import Schedule
from counterfoil.parts.editors.inversion import NullText, Setting
from counterfoil.parts.editors.prompt_to_prompt import Options, PromptToPrompt
from counterfoil.parts.fast import unets
from counterfoil.parts.fast.compiling import Compiled
from counterfoil.parts.generators.diffusion import Denoising, DiffusionGenerator, Process, UNetDenoiser
from counterfoil.parts.painters.diffusers import DiffusersOptions, PipelinePainter
from counterfoil.testing import pictures

FULL_SIZE = "Painter and editor: Stable Diffusion 1.4's architecture at 512 px, 50 steps; generator: DDPM's at 256 px, ten levels"
COVERS = ["src/counterfoil/parts/fast", "src/counterfoil/parts/editors", "src/counterfoil/parts/painters"]
ANSWERS = "answers: the fused UNet from its own, relative"
ON_REQUEST = ("generator: ours, compiled",)
GUIDANCE = 7.5
CAPTIONS = (  # of an image's edits, one for each of LANCE's factors; were two alike, they would be drawn once
    sd.EDITED,
    "a photo of a blue wool dress on a beach",
    "a photo of a red silk dress on a beach",
    "a photo of a red wool bag on a beach",
    "a sketch of a red wool dress on a beach",
)
EDITS = len(CAPTIONS)
INNER = 10  # gradient steps of the fitting
Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """Amount of work in a case."""

    device: str
    sizes: sd.Sizes
    side: int  # of the generator's images
    steps: int
    fitted: int  # steps of the fitting that are timed
    inverted: int  # images inverted at a time
    loop: int  # images of a batched plain loop
    drawn: int  # images of the generator at a time


def row(seconds: float, flops: float, count: int, peak: float | None, **more: float) -> Row:
    """The figures of one image."""
    found = {"seconds_per_image": seconds, "images_per_second": 1 / seconds, "tflops": flops / seconds / 1e12, "at_a_time": count}
    return {**found, **more, **({"gib": peak} if peak is not None else {})}


def fresh(parts: dict[str, Any], kind: torch.dtype = torch.float32) -> dict[str, Any]:
    """Networks of their own for a row, in a dtype."""
    networks = {name: copy.deepcopy(part) for name, part in parts.items() if isinstance(part, nn.Module)}
    return {**parts, **{name: nn.Module.to(network, dtype=kind) for name, network in networks.items()}}


def operations(sizes: sd.Sizes) -> dict[str, int]:
    """Operations of one row, by what is called; counted without computing anything."""
    made = sd.stable_diffusion(sizes, device="meta")
    latents = torch.zeros(1, 4, sizes.side, sizes.side, device="meta")
    text = torch.zeros(1, int(made["tokenizer"].model_max_length), sizes.text, device="meta")

    def denoise(leaf: Tensor) -> Tensor:
        answer: Tensor = made["unet"](latents, torch.zeros(1, device="meta"), encoder_hidden_states=leaf).sample
        return answer

    def fit() -> None:
        leaf = text.clone().requires_grad_()
        denoise(leaf).sum().backward()

    picture = torch.zeros(1, 3, *[sizes.side * 2 ** (len(sizes.vae) - 1)] * 2, device="meta")
    return {
        "call": count_operations(lambda: denoise(text)),
        "fit": count_operations(fit),
        "encode": count_operations(lambda: made["vae"].encode(picture)),
        "decode": count_operations(lambda: made["vae"].decode(latents)),
    }


def count_operations(work: Callable[[], object]) -> int:
    """The operations that torch counts in some work."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


class Painting:
    """Text to images."""

    def __init__(self, scale: Scale, parts: dict[str, Any]) -> None:
        self.scale, self.parts, self.watch = scale, parts, partial(measure, device=scale.device)
        each = operations(scale.sizes)
        self.flops = 2 * scale.steps * each["call"] + each["decode"]

    def straightforward(self, batch: int, kind: torch.dtype) -> Row:
        """The pipeline call of diffusers."""
        paint = sd.pipeline(fresh(self.parts, kind))
        prompt = [sd.CAPTION] * batch if batch > 1 else sd.CAPTION

        def work(steps: int) -> None:
            paint(prompt, num_inference_steps=steps, guidance_scale=GUIDANCE, output_type="pt")

        work(2)
        seconds, peak = self.watch(lambda: work(self.scale.steps))
        return row(seconds / batch, self.flops, batch, peak)

    def painter(self, *, compiled: bool) -> tuple[Row, Callable[[], object]]:
        """Ours, as it is on the device by default; and two steps of it, to be profiled."""
        options = DiffusersOptions(steps=2, guidance=GUIDANCE, compiled=compiled)
        painter = PipelinePainter(sd.pipeline(fresh(self.parts)), options).to(self.scale.device)
        prompts, seeds = [sd.CAPTION] * painter.batch, torch.arange(painter.batch)

        def work(steps: int) -> None:
            painter.options = replace(options, steps=steps)
            painter.paint(prompts, seeds)

        warm, _ = self.watch(lambda: work(2))
        seconds, peak = self.watch(lambda: work(self.scale.steps))
        return row(seconds / painter.batch, self.flops, painter.batch, peak, warm_up_seconds=warm), lambda: work(2)


class Editing:
    """An image inverted, and redrawn for every edit and candidate."""

    def __init__(self, scale: Scale, parts: dict[str, Any]) -> None:
        self.scale, self.parts, self.watch = scale, parts, partial(measure, device=scale.device)
        self.each = operations(scale.sizes)
        self.options = Options(steps=scale.steps, inner_steps=INNER)
        self.method = NullText(inner_steps=INNER, tolerance=0.0, slack=0.0)
        self.inversion_flops = self.each["encode"] + scale.steps * (3 * self.each["call"] + INNER * self.each["fit"])

    def straightforward(self, kind: torch.dtype) -> Row:
        """One image, edit and candidate at a time."""
        from diffusers import DDIMScheduler

        own, few = fresh(self.parts, kind), min(10, self.scale.steps)
        scheduler = DDIMScheduler(**sd.SCHEDULER)
        scheduler.set_timesteps(self.scale.steps, device=self.scale.device)
        editor = PlainEditor(own["unet"], own["vae"], scheduler, GUIDANCE)
        caption, edited, empty = (_embedded(own, text) for text in (sd.CAPTION, sd.EDITED, ""))
        picture = pictures(1, self._size()).to(self.scale.device, kind)
        goals = [torch.zeros(1, 4, *[self.scale.sizes.side] * 2, device=self.scale.device, dtype=kind)] * self.scale.fitted
        share = self.options.shares[len(self.options.shares) // 2]

        def fit(count: int) -> None:
            editor.fit(goals[0], goals[:count], caption=caption, empty=empty, inner=INNER)

        editor.invert(picture, caption, calls=1), fit(1)
        inverting, _ = self.watch(lambda: editor.invert(picture, caption, calls=few))
        fitting, peak = self.watch(lambda: fit(self.scale.fitted))
        redrawing, _ = self.watch(lambda: editor.redraw(goals[0], caption=caption, edited=edited, empty=empty, share=share))
        inversion = (inverting / few + fitting / self.scale.fitted) * self.scale.steps
        candidates = len(self.options.shares)
        flops = candidates * (4 * self.scale.steps * self.each["call"] + 2 * self.each["decode"])
        return self._row(inversion, redrawing * candidates, edit_flops=flops, count=1, peak=peak)

    def editor(self) -> Row:
        """Ours, as it is on the device by default: a stage's images inverted together, and edits of several images."""
        part = PromptToPrompt(sd.diffusion(fresh(self.parts)), self.options).to(self.scale.device)
        diffusion, schedule, count = part.diffusion, part.schedule, self.scale.inverted
        texts, empty = diffusion.embed([sd.CAPTION] * count), diffusion.embed([""] * count)
        some = pictures(count, diffusion.size)
        levels: list[Tensor] = []

        def first(steps: int) -> Schedule:
            return replace(schedule, times=schedule.times[:steps], kept=schedule.kept[: steps + 1])

        def invert(steps: int) -> None:
            levels[:] = self.method.levels(Setting(diffusion, first(steps), GUIDANCE), diffusion.encode(some), texts)

        def fit(steps: int) -> None:
            setting = Setting(diffusion, first(steps), GUIDANCE)
            self.method.fit(setting, levels[: steps + 1], conditional=texts, empty=empty)

        invert(1), fit(1)
        inverting, _ = self.watch(lambda: invert(schedule.steps))
        fitting, peak = self.watch(lambda: fit(self.scale.fitted))
        edits = part._rows_per_batch()[1]
        inverted = self._inversions(levels[0], diffusion.longest, pictures=-(-edits // EDITS))
        asked, captions = (
            [inverted[number // EDITS] for number in range(edits)],
            [CAPTIONS[number % EDITS] for number in range(edits)],
        )
        # Batches of the same sizes as in the walk that is timed, in fewer steps: libraries plan for each size at its first use.
        short = PromptToPrompt(diffusion, replace(self.options, steps=min(10, self.scale.steps)))
        few = [Inversion(one.caption, {**one.tensors, "unconditional": one.tensors["unconditional"][:10]}) for one in inverted]
        short.edit([few[number // EDITS] for number in range(edits)], captions)
        calls: list[int] = []
        plain = diffusion.predict

        def predict(latents: Tensor, time: int | Tensor, embeddings: Tensor) -> Tensor:
            calls.append(len(latents))
            return plain(latents, time, embeddings)

        diffusion.predict = predict  # type: ignore[method-assign]
        made: list[EditResult | Refusal] = []
        redrawing, other = self.watch(lambda: made.extend(part.edit(asked, captions)))
        if refused := next((each for each in made if isinstance(each, Refusal)), None):
            raise RuntimeError(refused.reason)
        pictures_out = edits * len(part.sweep) + len(inverted)
        flops = (sum(calls) * self.each["call"] + pictures_out * self.each["decode"]) / edits
        inversion = (inverting + fitting / self.scale.fitted * self.scale.steps) / count
        return self._row(inversion, redrawing / edits, edit_flops=flops, count=count, peak=max(peak or 0, other or 0) or None)

    def _row(self, inversion: float, edit: float, *, edit_flops: float, count: int, peak: float | None) -> Row:
        more = {
            "inversion_seconds": inversion,
            "inversion_tflops": self.inversion_flops / inversion / 1e12,
            "edit_seconds": edit,
            "edit_tflops": edit_flops / edit / 1e12,
        }
        return row(inversion + EDITS * edit, self.inversion_flops + EDITS * edit_flops, count, peak, **more)

    def _inversions(self, noisiest: Tensor, tokens: int, *, pictures: int) -> list[Inversion]:
        width = self.scale.sizes.text
        embeddings = torch.randn(self.scale.steps, tokens, width, generator=torch.Generator().manual_seed(0)).half()
        found = {"unconditional": embeddings}
        return [Inversion(sd.CAPTION, {"latent": noisiest[place].float().cpu(), **found}) for place in range(pictures)]

    def _size(self) -> int:
        return int(self.scale.sizes.side * 2 ** (len(self.scale.sizes.vae) - 1))


def _embedded(parts: dict[str, Any], text: str) -> Tensor:
    tokens = parts["tokenizer"]([text], padding="max_length", truncation=True, return_tensors="pt").input_ids
    with torch.no_grad():
        found: Tensor = parts["text_encoder"](tokens.to(parts["text_encoder"].device))[0]
    return found


LEVELS = 10


class Generating:
    """Guided denoising of images: noised, and pushed up a loss on their way down ten levels."""

    def __init__(self, scale: Scale) -> None:
        self.scale, self.watch = scale, partial(measure, device=scale.device)
        self.network = self._network(scale.device)
        still = self._network("meta")
        blank, time = torch.zeros(1, 3, scale.side, scale.side, device="meta"), torch.zeros(1, device="meta")

        def push() -> None:
            leaf = blank.clone().requires_grad_()
            still(leaf, time).sample.sum().backward()

        plain = count_operations(lambda: still(blank, time))
        # At each level a call with its gradient and one for every level left; between levels one that steps down.
        self.flops = LEVELS * count_operations(push) + (LEVELS * (LEVELS - 1) // 2 + LEVELS - 1) * plain

    def straightforward(self, batch: int) -> Row:
        """A loop over the network and its scheduler, in float32 as torch computes it unless told otherwise."""
        from diffusers import DDIMScheduler

        scheduler, network = DDIMScheduler(), copy.deepcopy(self.network)
        some = pictures(batch, self.scale.side).to(self.scale.device)

        def work(levels: int) -> None:
            climb(network, scheduler, some, top=self._top(), levels=levels, loss=self._loss, length=0.01)

        work(2)
        seconds, peak = self.watch(lambda: work(LEVELS))
        return row(seconds / batch, self.flops, batch, peak)

    def generator(self, *, compiled: bool) -> Row:
        """Ours, in the dtype and with the compiler that the engine gives it on a GPU."""
        device, count = torch.device(self.scale.device), self.scale.drawn
        how = Acceleration("bf16")
        network = copy.deepcopy(self.network)
        if device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)
        generator = DiffusionGenerator(UNetDenoiser(network, Process(self._kept_share())), Denoising(steps=LEVELS)).to(device)
        generator = generator.accelerate(how.dtype) or generator
        render = Compiled(generator.render, name="the generator") if compiled else generator.render
        some, labels = pictures(count, self.scale.side).to(device), torch.zeros(count, dtype=torch.long, device=device)

        def work(levels: int) -> None:
            with how.computing(device, low=False):
                state = generator.start(some, labels, torch.arange(count, device=device))
            for _ in range(levels):
                with how.computing(device):
                    leaf = state["noisy"].detach().requires_grad_()
                    (slope,) = torch.autograd.grad(self._loss(render({**state, "noisy": leaf})), leaf)
                    state = generator.step(state, 0.01 * slope.sign())

        warm, _ = self.watch(lambda: work(2))
        seconds, peak = self.watch(lambda: work(LEVELS))
        return row(seconds / count, self.flops, count, peak, warm_up_seconds=warm)

    def _loss(self, images: Tensor) -> Tensor:
        return (images * torch.linspace(-1, 1, self.scale.side, device=images.device)).sum()

    def _network(self, device: str) -> Any:
        from diffusers import UNet2DModel

        full = self.scale.side == 256
        widths, attended = ((128, 128, 256, 256, 512, 512), 4) if full else ((16, 32), 1)
        down = ["AttnDownBlock2D" if level == attended else "DownBlock2D" for level in range(len(widths))]
        torch.manual_seed(0)
        with torch.device(device):
            made = UNet2DModel(
                sample_size=self.scale.side,
                block_out_channels=widths,
                layers_per_block=2,
                down_block_types=tuple(down),
                up_block_types=tuple(name.replace("Down", "Up") for name in reversed(down)),
                norm_num_groups=32 if full else 8,
            )
        return made.eval().requires_grad_(False)

    def _kept_share(self) -> Tensor:
        from diffusers import DDIMScheduler

        kept: Tensor = DDIMScheduler().alphas_cumprod
        return kept

    def _top(self) -> int:
        return int(((1 - self._kept_share()).sqrt() - Denoising.strength).abs().argmin())


def fused_agreement(unet: nn.Module, *, device: str) -> dict[str, float]:
    """Fused in float32, and plain and fused in bf16, each against the network as it is; without TF32."""
    config: Any = unet.config
    chance = torch.Generator().manual_seed(0)
    latents = torch.randn(2, config.in_channels, config.sample_size, config.sample_size, generator=chance).to(device)
    words = torch.randn(2, 8, config.cross_attention_dim, generator=chance).to(device)
    with Acceleration().computing(torch.device(device)):
        exact = _answer(unet, latents, words)
        found: dict[str, float] = {}
        for name, dtype, fused in (
            ("float32 fused", torch.float32, True),
            ("bf16 plain", torch.bfloat16, False),
            ("bf16 fused", torch.bfloat16, True),
        ):
            network = nn.Module.to(copy.deepcopy(unet), dtype=dtype).eval()
            replaced = unets.fuse(network) if fused else []
            both = _answer(network, latents.to(dtype), words.to(dtype))
            found |= {f"{name} {what}": apart(*pair) for what, *pair in zip(("answers", "gradients"), both, exact, strict=True)}
            unets.unfuse(replaced)
    return found


def _answer(network: nn.Module, latents: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        answer = network(latents, 500, encoder_hidden_states=words, return_dict=False)[0]
    leaf = latents.clone().requires_grad_()
    with torch.enable_grad():
        loss = network(leaf, 500, encoder_hidden_states=words, return_dict=False)[0].float().square().sum()
    return answer, torch.autograd.grad(loss, leaf)[0]


def apart(found: Tensor, wanted: Tensor) -> float:
    """The distance relative to the size of what is wanted."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def rows_of(scale: Scale) -> dict[str, Callable[[], Any]]:
    """Return what can be timed, by name. Networks are made when the first of their rows is."""
    half, single, parts = torch.bfloat16, torch.float32, cache(lambda: sd.stable_diffusion(scale.sizes, device=scale.device))
    painting, editing = cache(lambda: Painting(scale, parts())), cache(lambda: Editing(scale, parts()))
    generating = cache(lambda: Generating(scale))
    return {
        ANSWERS: lambda: fused_agreement(parts()["unet"], device=scale.device),
        "painter: diffusers' call, one prompt, float32": lambda: painting().straightforward(1, single),
        "painter: diffusers' call, one prompt, bfloat16": lambda: painting().straightforward(1, half),
        f"painter: diffusers' call, {scale.loop} prompts, bfloat16": lambda: painting().straightforward(scale.loop, half),
        "painter: ours": lambda: painting().painter(compiled=False),
        "painter: ours, compiled": lambda: painting().painter(compiled=True),
        "editor: one at a time, bfloat16": lambda: editing().straightforward(half),
        "editor: ours": lambda: editing().editor(),
        "generator: loop, one image, float32": lambda: generating().straightforward(1),
        f"generator: loop, {scale.loop} images, float32": lambda: generating().straightforward(scale.loop),
        "generator: ours": lambda: generating().generator(compiled=False),
        "generator: ours, compiled": lambda: generating().generator(compiled=True),
    }


def compare(rows: dict[str, Row], known: Iterable[str], limit: float) -> dict[str, Row]:
    """The rows in their usual order, their share of the limit, and how many times faster they are than the first of a kind."""
    found: dict[str, Row] = {}
    first: dict[str, float] = {}
    for name in [name for name in known if name in rows]:
        row = rows[name]
        if "seconds_per_image" in row:
            seconds = first.setdefault(name.partition(":")[0], row["seconds_per_image"])
            row = {**row, "of_the_limit": row["tflops"] / limit, "times": seconds / row["seconds_per_image"]}
        found[name] = row
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default="all", help="parts of rows' names, separated by semicolons, or all")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--fitted", type=int, default=2, help="steps of the fitting that are timed")
    parser.add_argument("--profile", action="store_true", help="print the longest kernels of the painter")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to rehearse on a CPU")
    add_keep(parser)
    asked = parser.parse_args()
    scale = Scale(asked.device, sd.FULL, 256, steps=asked.steps, fitted=asked.fitted, inverted=16, loop=16, drawn=32)
    if asked.tiny:
        scale = Scale(asked.device, sd.TINY, 16, steps=4, fitted=1, inverted=2, loop=2, drawn=2)
    known = rows_of(scale)
    names = [name for name in known if name not in ON_REQUEST]
    if asked.rows != "all":
        parts = [part.strip() for part in asked.rows.split(";")]
        wanted = [[part] if part in known else [name for name in known if part in name] for part in parts]
        names = list(dict.fromkeys(name for some in wanted for name in some))
    if not names:
        sys.exit(f"--rows: no row has {asked.rows!r} in its name; there are {'; '.join(known)}")
    limit, rows = matmul_limit(asked.device), {}
    details: dict[str, Any] = {"matmul_tflops": limit, "steps": scale.steps, "fitted_steps": scale.fitted, "profile": {}}
    print(details, flush=True)
    for name in names:
        clear(asked.device)
        work = None
        try:
            found = known[name]()
            rows[name], work = found if isinstance(found, tuple) else (found, None)
        except Exception as error:  # the other rows are worth having
            rows[name] = {"error": repr(error)[:300]}
        if work is not None and asked.profile and asked.device == "cuda":
            details["profile"][name] = profile(work)
        so_far = compare(rows, known, limit)
        numbers = {key: f"{value:.4g}" for key, value in so_far[name].items() if isinstance(value, int | float)}
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in numbers.items()) or rows[name]['error']}", flush=True)
        if name == ANSWERS:
            details["fused_differs_by"] = rows[name]
        if asked.keep:
            listed = [{"what": row, **found} for row, found in so_far.items() if row != ANSWERS]
            keep(
                asked.keep,
                listed,
                command=command("bench.diffusion_speed"),
                about=about(limit, asked),
                details=details,
                covers=COVERS,
                shown=("what", "seconds_per_image", "at_a_time", "gib", "times"),
            )


def about(limit: float, asked: argparse.Namespace) -> str:
    """Return what the rows show, in a sentence or two."""
    networks = "Tiny networks, a rehearsal" if asked.tiny else FULL_SIZE
    return f"{networks}; random weights. Large bf16 matrix products reach {limit:.0f} TFLOP/s in the same run."


if __name__ == "__main__":
    main()
