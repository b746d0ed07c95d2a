"""Images an hour of the inversions at Stable Diffusion 1.4's full size, against null-text inversion one image at a time.

    python -m bench.editing [--device cuda] [--batch 32] [--precision bfloat16] [--compiled] [--tiny] [--keep NAME]

The networks have the architecture of Stable Diffusion 1.4 and random weights, which cost the same time as trained ones. Both
sides have the same settings: 50 steps, guidance 7.5, ten inner steps without early stop (random weights say nothing about when
one would come), the same precision and the same attention kernels. `sequential` is what one writes from the paper: one picture,
one call for the caption and one for the empty text, torch's Adam. Fitting runs for the first `--fitted` of the 50 steps and is
scaled to 50, since every step does the same work; inversion and encoding run in full.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import torch
from bench.results import add_keep, command, keep
from bench.stable_diffusion import CAPTION, EDITED, FULL, TINY, Watch, diffusion, networks
from torch import Tensor

from counterfoil.parts.editors.attention import align, make_control
from counterfoil.parts.editors.diffusion import Diffusion, Schedule, guide
from counterfoil.parts.editors.inversion import Ddim, NullText, Setting
from counterfoil.parts.editors.prompt_to_prompt import Options, redraw
from counterfoil.testing import pictures

GUIDANCE = 7.5
FITTING = NullText(tolerance=0.0, slack=0.0)


def shortened(schedule: Schedule, steps: int) -> Schedule:
    """The first steps of a schedule."""
    return replace(schedule, times=schedule.times[:steps], kept=schedule.kept[: steps + 1])


def sequential_fit(diffusion: Diffusion, schedule: Schedule, levels: list[Tensor], caption: Tensor, empty: Tensor) -> Tensor:
    """Null-text optimisation of one picture as the paper tells it."""
    latents = levels[0]
    for step in range(schedule.steps):
        empty = empty.detach().clone().requires_grad_()
        optimiser = torch.optim.Adam([empty], lr=FITTING.rate_at(step))
        with torch.no_grad():
            told = diffusion.predict(latents, schedule.times[step], caption)
        for _ in range(FITTING.inner_steps):
            output = guide(diffusion.predict(latents, schedule.times[step], empty), told, GUIDANCE)
            reached = schedule.towards(schedule.estimate(output, latents, step), step + 1)
            loss = torch.nn.functional.mse_loss(reached, levels[step + 1])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if loss.item() < FITTING.tolerance:  # never; but the paper's loop looks at the loss, and so waits for the device
                break
        with torch.no_grad():
            output = guide(diffusion.predict(latents, schedule.times[step], empty), told, GUIDANCE)
            latents = schedule.towards(schedule.estimate(output, latents, step), step + 1)
    return latents


class Bench:
    """The measurements, over one set of networks."""

    def __init__(self, diffusion: Diffusion, *, steps: int, fitted: int, device: str) -> None:
        self.diffusion, self.steps, self.fitted = diffusion, steps, min(fitted, steps)
        self.schedule = diffusion.schedule(steps)
        self.watch = Watch(device)

    def setting(self, schedule: Schedule) -> Setting:
        """The diffusion with a schedule, guided as LANCE does."""
        return Setting(self.diffusion, schedule, GUIDANCE)

    def null_text(self, batch: int, *, sequential: bool) -> dict[str, Any]:
        """Encoding, inversion and fitting of a batch; `sequential` takes the paper's loop, which knows only one picture."""
        images, texts = pictures(batch, self.diffusion.size), self.diffusion.embed([CAPTION] * batch)
        empty, few = self.diffusion.embed([""] * batch), shortened(self.schedule, self.fitted)
        levels: list[Tensor] = []

        def invert() -> None:
            levels[:] = Ddim().levels(self.setting(self.schedule), self.diffusion.encode(images), texts)

        def fit() -> None:
            some = levels[: self.fitted + 1]
            if sequential:
                sequential_fit(self.diffusion, few, some, texts, empty)
            else:
                FITTING.fit(self.setting(few), some, conditional=texts, empty=empty)

        (inversion, first), (fitting, second) = self.watch(invert), self.watch(fit)
        seconds = (inversion + fitting * self.steps / self.fitted) / batch
        return _figures(seconds, batch, first, second, inversion_s=inversion / batch, step_s=fitting / self.fitted / batch)

    def fast(self, inversion: str, batch: int) -> dict[str, Any]:
        """Encoding and one of the inversions that need no fitting."""
        method = Options(inversion=inversion, steps=self.steps).method  # type: ignore[arg-type]
        images, captions = pictures(batch, self.diffusion.size), [CAPTION] * batch

        def work() -> None:
            latents = self.diffusion.encode(images)
            method.invert(self.setting(self.schedule), latents, captions, list(range(batch)))

        seconds, peak = self.watch(work)
        return _figures(seconds / batch, batch, peak)

    def edits(self, count: int) -> dict[str, Any]:
        """Edits of a sweep of five, after negative-prompt inversion, decoding included."""
        options = Options(inversion="negative-prompt", steps=self.steps, guidance=GUIDANCE)
        latent = torch.randn(1, 4, *[int(self.diffusion.unet.config.sample_size)] * 2, device=self.diffusion.device)
        shares = options.shares
        rows = count * len(shares)
        pull = torch.full((rows,), GUIDANCE, device=self.diffusion.device)

        def work() -> None:
            walk = options.method.walk(self.setting(self.schedule), {"latent": latent}, [CAPTION])
            control = make_control(
                options.control,
                alignments=[align(CAPTION, EDITED, self.diffusion.tokens)] * rows,
                owner=[0] * rows,
                self_shares=shares * count,
                steps=self.steps,
                length=self.diffusion.longest,
                device=self.diffusion.device,
            )
            edited = self.diffusion.embed([EDITED] * rows)
            made = redraw(self.diffusion, self.schedule, walk, edited=edited, control=control, guidance=pull)[1]
            for one in made.split(len(shares)):
                self.diffusion.decode(one)

        seconds, peak = self.watch(work)
        return _figures(seconds / count, count, peak)


def _figures(seconds: float, batch: int, *peaks: float | None, **more: float) -> dict[str, Any]:
    found = [peak for peak in peaks if peak is not None]
    figures = {"batch": batch, "s_an_image": seconds, "images_an_hour": 3600 / seconds, **more}
    return {**figures, **({"peak_gib": max(found)} if found else {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=("float32", "bfloat16", "float16"), default=None, help="default bfloat16 on a GPU")
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 16, 32], help="batches of the null-text fitting")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--fitted", type=int, default=10, help="steps that are fitted; the time is scaled to all of them")
    parser.add_argument("--repeats", type=int, default=2, help="of the sequential baseline; the fastest counts")
    parser.add_argument("--compiled", action="store_true", help="compile the denoiser for the batched side")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to rehearse on a CPU")
    add_keep(parser)
    given = parser.parse_args()
    if given.tiny:
        given.batch, given.steps, given.fitted = [4], 5, 2
    precision = given.precision or ("bfloat16" if given.device.startswith("cuda") else "float32")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    editor = diffusion(networks(TINY if given.tiny else FULL, device=given.device))
    editor.accelerate(precision=precision, compiled=False).place(given.device)
    bench = Bench(editor, steps=given.steps, fitted=given.fitted, device=given.device)
    short = Bench(editor, steps=given.steps, fitted=1, device=given.device)
    about = (
        f"Inversions at the size of {'tiny networks, a rehearsal' if given.tiny else 'Stable Diffusion 1.4'} ({editor.size} px, "
        f"{given.steps} steps, {bench.fitted} of them fitted and the time scaled), {precision}, "
        f"{'' if given.compiled else 'not '}compiled, random weights."
    )
    details = {"parameters": sum(part.numel() for part in editor.parameters())}
    rows: list[dict[str, Any]] = []

    def note(name: str, figures: dict[str, Any]) -> None:
        rows.append({"what": name, **figures})
        print(json.dumps(rows[-1]), flush=True)
        if given.keep:
            keep(given.keep, rows, command=command("bench.editing"), about=about, details=details)

    short.null_text(1, sequential=True)  # kernels are chosen at the first call
    runs = [bench.null_text(1, sequential=True) for _ in range(given.repeats)]
    fastest = min(runs, key=lambda run: float(run["s_an_image"]))
    note("null-text, sequential", fastest)
    if given.compiled:
        editor.accelerate(precision=precision, compiled=True)
    fitting_batches = []
    for batch in given.batch:
        try:
            short.null_text(batch, sequential=False)
            found = bench.null_text(batch, sequential=False)
            note(f"null-text, {batch} at a time", {**found, "times": fastest["s_an_image"] / found["s_an_image"]})
            fitting_batches.append(batch)
        except torch.OutOfMemoryError:
            note(f"null-text, {batch} at a time", {"batch": batch, "error": "out of memory"})
            torch.cuda.empty_cache()
    most = max(fitting_batches)
    note(f"negative-prompt, {most} at a time", bench.fast("negative-prompt", most))
    note(f"edit-friendly, {most} at a time", bench.fast("edit-friendly", most))
    editor.accelerate(precision=precision, compiled=False)
    note("edits, sweep of five", bench.edits(4))


if __name__ == "__main__":
    main()
