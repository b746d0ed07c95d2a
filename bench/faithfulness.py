"""How faithful the lab's edits are: is the asked-for change there, is everything else as it was?

    python -m bench.faithfulness [--inversion NAME …] [--count 60] [--each 7] [--device cuda] [--set KEY=VALUE …] [--keep NAME]
    python -m bench.faithfulness --sweep --device cuda --records FILE --keep NAME

Scenes with known attributes are inverted under their true caption; one factor at a time gets another value, the picture is
edited, the best of the sweep that passes quality control is kept if the oracle still sees the garment. The attribute checker,
which took no part, then reads every attribute off the kept pictures; docs/editing.md says what counts as kept. Shares are of
accepted edits, with Wilson's 95 % interval. Beside them: how near a plain reconstruction comes to what the autoencoder alone
leaves of a picture.

`--sweep` tries the settings of `TRIED` on the garments of `tune` with every candidate they name, chooses candidates and bars for
each inversion there, and prints what the choice comes to on the garments of `report`. Exit code 1 if a demand is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from bench.results import add_keep, command, keep
from torch import Tensor

from counterfoil.editing.prompt_to_prompt import PromptToPrompt
from counterfoil.editing.settings import INVERSIONS
from counterfoil.lab import garments, parts, scenes
from counterfoil.lab.captions import captions
from counterfoil.lab.captions import replace as reworded
from counterfoil.lab.checker import Checker
from counterfoil.lab.edit_choice import best_choice
from counterfoil.lab.edit_faithfulness import Candidate, Edit, Outcome, by_factor, margin, readings
from counterfoil.lab.editor import BARS
from counterfoil.lab.editor import editor as lab_editor
from counterfoil.lab.readings import Reading, mean, share
from counterfoil.lab.vocabulary import FACTORS, GARMENTS
from counterfoil.parts import Edited, Inversion
from counterfoil.quality.measure import Ruler, compared
from counterfoil.spec import part
from counterfoil.spec.lance import QualitySpec

EDITED = ("background", "colour", "material", "texture", "object", "domain", "weather")
MEASURED = ("null-text", "negative-prompt", "edit-friendly")
ROWS = {"cpu": 1, "cuda": 640}  # rows of a call of the denoiser while redrawing, about

SHARES, PULLS = (0.2, 0.35, 0.5, 0.7), (1.3, 2.0, 3.0)
CONTROLS: tuple[dict[str, Any], ...] = (
    {"cross_replace": 0.7, "blend": 0.3},
    {"cross_replace": 0.7, "blend": 0.3, "blend_by": "difference"},
    {"cross_replace": 0.7, "blend": 0.5, "blend_by": "difference"},
    {"cross_replace": 0.7, "blend": 0.7, "blend_by": "difference"},
    {"cross_replace": 0.9, "blend": 0.5, "blend_by": "difference"},
)
_BOTH = {"self_replace": [share for share, _ in product(SHARES, PULLS)], "guidance": [pull for _, pull in product(SHARES, PULLS)]}
TRIED: dict[str, tuple[dict[str, Any], ...]] = {
    "null-text": tuple({"self_replace": list(SHARES), "guidance": pull, **one} for pull in PULLS for one in CONTROLS),
    "negative-prompt": tuple({**_BOTH, **one} for one in CONTROLS),
    "edit-friendly": (*({**_BOTH, **one} for one in CONTROLS), {**_BOTH, "skip": 0.25, **CONTROLS[2]}),
}
TRIED_BARS = tuple(
    QualitySpec(image_image=near, image_text=0.1, directional=way) for near, way in product((0.6, 0.7, 0.8), (0.4, 0.5, 0.6))
)


class Audit:
    """Scenes, the changes asked of them, and everyone who judges what an editor makes of it."""

    def __init__(self, *, count: int, distribution: str, split: str, seed: int, device: str) -> None:
        shapes = garments.shipped(split)
        self.scenes = scenes.sample(count, garments=shapes, distribution=distribution, seed=seed)
        self.images = (scenes.render(self.scenes, shapes)[0] * 255).round() / 255
        self.captions = captions(self.scenes)
        self.device = device
        self.checker = Checker(device)
        self.ruler = Ruler(parts.encoder("clip").to(device), tile=4 if device == "cpu" else 512, device=device)
        self.oracle = parts.oracle("clip").bind(GARMENTS)
        self.oracle.to(device)
        self.embedded = self.ruler.images(list(self.images))
        read = self.checker.read(self.images)
        self.sources = [{name: int(read[name][row]) for name in FACTORS} for row in range(count)]
        self.truths = [{name: int(self.scenes.factors[name][row]) for name in FACTORS} for row in range(count)]
        self._texts: dict[str, Tensor] = {}
        self._inverted: dict[str, list[Inversion]] = {}

    def edits(self, editor: PromptToPrompt, inversions: list[Inversion], factors: Sequence[str], each: int) -> list[Edit]:
        """Ask for another value of `each` of the factors in every scene, in turn, and have all candidates judged."""
        drawing = self._drawing(editor)
        found = []
        for place, factor in enumerate(factors):
            rows = [row for row in range(len(inversions)) if (place - row) % len(factors) < each]
            values = [self._other(factor, row) for row in rows]
            captions = [self.captions[row] for row in rows]
            texts = [reworded(text, factor, FACTORS[factor][value]) for text, value in zip(captions, values, strict=True)]
            asked = [Edit(factor, value, self.truths[row], self.sources[row]) for row, value in zip(rows, values, strict=True)]
            made = drawing.edit([inversions[row] for row in rows], texts)
            found += self._judged(asked, rows, texts, made, names=editor.sweep)
        return found

    def _drawing(self, editor: PromptToPrompt) -> PromptToPrompt:
        """The editor with as many rows at a time as the device likes, and no more than there are."""
        needed = (len(self.images) * len(editor.sweep) + 1) // 2
        return PromptToPrompt(editor.diffusion, editor.settings, tile=max(1, min(ROWS[self.device.split(":")[0]] // 2, needed)))

    def _judged(
        self, asked: list[Edit], rows: list[int], texts: list[str], made: list[Any], *, names: Sequence[str]
    ) -> list[Edit]:
        done = [one if isinstance(made[at], Edited) else replace(one, refused=made[at].reason) for at, one in enumerate(asked)]
        drawn = [at for at, one in enumerate(made) if isinstance(one, Edited)]
        if not drawn:
            return done
        pictures = (torch.cat([made[at].candidates for at in drawn]) * 255).round() / 255  # (drawn · S, 3, H, W)
        labels = torch.tensor([self.truths[rows[at]]["garment"] for at in drawn for _ in names])
        embedded, read = self.ruler.images(list(pictures)), self.checker.read(pictures)
        keeps = torch.cat(
            [
                self.oracle.judge(some.to(self.device), some_labels.to(self.device)).keeps_label.cpu() == 1
                for some, some_labels in zip(pictures.split(256), labels.split(256), strict=True)
            ]
        )
        for place, at in enumerate(drawn):
            span = range(place * len(names), (place + 1) * len(names))
            before, after = self._text(self.captions[rows[at]]), self._text(texts[at])
            alike = compared(self.embedded[rows[at]], embedded[span.start : span.stop], before=before, after=after)
            done[at] = replace(
                done[at],
                candidates=tuple(
                    Candidate(name, close, bool(keeps[where]), {each: int(read[each][where]) for each in FACTORS})
                    for name, close, where in zip(names, alike, span, strict=True)
                ),
            )
        return done

    def _text(self, text: str) -> Tensor:
        if text not in self._texts:
            self._texts[text] = self.ruler.texts([text])[0]
        return self._texts[text]

    def _other(self, factor: str, row: int) -> int:
        """Another value than the scene's, the same for every editor."""
        draw = int.from_bytes(hashlib.blake2b(f"{factor} {row}".encode(), digest_size=8).digest(), "big")
        values = len(FACTORS[factor])
        return (int(self.scenes.factors[factor][row]) + 1 + draw % (values - 1)) % values

    def invert(self, editor: PromptToPrompt) -> list[Inversion]:
        """The inversions of all scenes, on a GPU in one batch; what hangs on the redrawing alone shares them."""
        settings, null_text = editor.settings, editor.settings.inversion == "null-text"
        key = repr(
            (settings.inversion, settings.guidance if null_text else (), settings.fitting, settings.refinements, settings.skip)
        )
        if key in self._inverted:
            return self._inverted[key]
        tile = None if self.device == "cpu" else len(self.images)
        found = PromptToPrompt(editor.diffusion, editor.settings, tile=tile).invert(
            list(self.images), self.captions, list(range(len(self.images)))
        )
        for one in found:
            if not isinstance(one, Inversion):
                sys.exit(f"an inversion was refused: {one.reason}")
        self._inverted[key] = [one for one in found if isinstance(one, Inversion)]
        return self._inverted[key]

    def reconstruction(self, editor: PromptToPrompt, inversions: list[Inversion]) -> list[Reading]:
        """What an edit without a change costs, in decibels: beside the original, and below the autoencoder's own limit."""
        few, images = inversions[:16], self.images[:16]
        one = replace(editor.settings, self_replace=editor.settings.self_replace[:1], guidance=editor.settings.guidance[:1])
        plainly = PromptToPrompt(editor.diffusion, one, tile=1 if self.device == "cpu" else len(few))
        made = plainly.edit(few, self.captions[: len(few)])
        plain = torch.stack([one.reconstruction for one in made if isinstance(one, Edited)])
        limit = psnr(editor.diffusion.decode(editor.diffusion.encode(images)).cpu(), images)
        reached = psnr(plain, images)
        return [
            mean("reconstruction", reached, "dB"),
            mean("reconstruction below the autoencoder's limit", limit - reached, "dB", at_most=0.5),
        ]

    def autoencoder(self, editor: PromptToPrompt) -> list[Reading]:
        """What encoding and decoding alone keep, which no edit can better."""
        read = self.checker.read(
            torch.cat([editor.diffusion.decode(editor.diffusion.encode(some)) for some in self.images.split(32)])
        )
        rows = range(len(self.images))
        kept = {
            name: [int(read[name][row]) == self.truths[row][name] for row in rows if self._read_right(name, row)]
            for name in FACTORS
        }
        return [share(f"{name} kept by the autoencoder alone", torch.tensor(each)) for name, each in kept.items()]

    def _read_right(self, name: str, row: int) -> bool:
        return self.sources[row][name] == self.truths[row][name]


def psnr(made: Tensor, images: Tensor) -> Tensor:
    """Peak signal to noise.  # (N, 3, H, W) twice → (N,)"""
    return -10 * torch.log10((made - images).square().flatten(1).mean(1))


def accepted(edits: Sequence[Edit], bars: QualitySpec, sweep: Sequence[str] | None = None) -> tuple[list[Outcome], Counter[str]]:
    """Outcomes of the accepted edits, and why the others are none."""
    judged = [edit.judged(bars, sweep) for edit in edits]
    return [one for one in judged if isinstance(one, Outcome)], Counter(one for one in judged if isinstance(one, str))


def account(edits: Sequence[Edit], bars: QualitySpec, sweep: Sequence[str] | None = None) -> dict[str, Any]:
    """Everything there is to say of a set of edits, as plain data."""
    outcomes, refused = accepted(edits, bars, sweep)
    found = readings(outcomes)
    return {
        "asked": len(edits),
        "accepted": len(outcomes),
        "refused": dict(refused.most_common()),
        "margin": margin(found),
        "readings": [one.record() for one in found],
        "by_factor": [one.record() for one in by_factor(outcomes)],
    }


def show(title: str, found: dict[str, Any]) -> None:
    """Print an account's demands."""
    print(f"{title}: {found['accepted']} of {found['asked']} accepted, tightest demand by {found['margin']:+.1f}", flush=True)
    for record in [*found["reconstruction"], *found["autoencoder"], *found["readings"]]:
        one = Reading(**record)
        held = {True: "held", False: "MISSED", None: ""}[one.holds]
        print(f"  {one.name:48} {one.value:6.1f} [{one.low:.1f}, {one.high:.1f}] {one.unit} n={one.n} {held}", flush=True)
    low = [one for one in found["by_factor"] if one["value"] < 85]
    print("  below 85 % for one factor:", ", ".join(f"{one['name']} {one['value']:.0f} (n {one['n']})" for one in low) or "none")


def measure(
    given: argparse.Namespace, inversion: str, options: dict[str, Any], audit: Audit
) -> tuple[list[Edit], dict[str, Any]]:
    """Edit the scenes of an audit with one editor; the edits, and what is to be said of the editor."""
    editor = lab_editor("diffusion", **{**options, "inversion": inversion}).to(given.device)
    began = time.perf_counter()
    inversions = audit.invert(editor)
    inverted = time.perf_counter()
    edits = audit.edits(editor, inversions, given.factors, min(given.each, len(given.factors)))
    drawn = time.perf_counter()
    print(
        f"{inversion} {options}: inverted in {inverted - began:.1f} s, {len(edits)} edits in {drawn - inverted:.1f} s", flush=True
    )
    return edits, {
        "settings": editor.provenance()["settings"],
        "reconstruction": [one.record() for one in audit.reconstruction(editor, inversions)],
        "autoencoder": [one.record() for one in audit.autoencoder(editor)],
    }


def plain(given: argparse.Namespace, bars: QualitySpec) -> dict[str, Any]:
    """The settings as they are, or as given, for each inversion."""
    audit = Audit(count=given.count, distribution=given.distribution, split=given.split, seed=given.seed, device=given.device)
    results = {}
    for inversion in given.inversion:
        edits, about = measure(given, inversion, dict(part("lab:diffusion", given.set).options), audit)
        if given.records:
            record(given.records, inversion, about["settings"], edits)
        results[inversion] = {**about, "bars": bars.model_dump(), **account(edits, bars)}
        show(inversion, results[inversion])
    return results


def swept(given: argparse.Namespace, records: Path | None) -> dict[str, Any]:
    """Settings chosen on `tune` for each inversion, measured on `report`."""
    audits = {
        split: Audit(count=count, distribution=given.distribution, split=split, seed=given.seed, device=given.device)
        for split, count in (("tune", given.tried), ("report", given.count))
    }
    results = {}
    for inversion in given.inversion:
        tried = []
        for options in TRIED[inversion]:
            edits, _ = measure(given, inversion, options, audits["tune"])
            tried.append((options, edits))
            if records:
                record(records, inversion, options, edits)
        choices = [best_choice(edits, TRIED_BARS) for _, edits in tried]
        place = max(range(len(tried)), key=lambda each: choices[each].worth)
        (options, _), chosen = tried[place], choices[place]
        print(f"{inversion}: chosen on tune (margin {chosen.margin:+.1f}): {options} {chosen.sweep} {chosen.bars}", flush=True)
        edits, about = measure(given, inversion, options, audits["report"])
        results[inversion] = {
            **about,
            "sweep": chosen.sweep,
            "bars": chosen.bars.model_dump(),
            "tune_margin": chosen.margin,
            **account(edits, chosen.bars, chosen.sweep),
        }
        show(inversion, results[inversion])
    return results


def record(path: Path, inversion: str, options: dict[str, Any], edits: Sequence[Edit]) -> None:
    """Add every candidate's judgement to a file, so that other choices can be looked at without editing again."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"inversion": inversion, "options": options, "edits": [asdict(one) for one in edits]}) + "\n")


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was found as a table."""
    found: list[dict[str, Any]] = []
    for inversion, one in results.items():
        found.append(
            {"inversion": inversion, "what": "edits accepted of those asked for", "value": one["accepted"], "n": one["asked"]}
        )
        for kind in ("reconstruction", "autoencoder", "readings", "by_factor"):
            found += [{"inversion": inversion, **_row(Reading(**reading))} for reading in one[kind]]
    return found


def _row(reading: Reading) -> dict[str, Any]:
    numbers = {name: round(getattr(reading, name), 2) for name in ("value", "low", "high")}
    bars = {"at least": reading.at_least, "at most": reading.at_most}
    asked = {name: bar for name, bar in bars.items() if bar is not None}
    return {"what": reading.name, **numbers, "n": reading.n, "unit": reading.unit, **asked}


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inversion", nargs="+", choices=INVERSIONS, default=list(MEASURED))
    parser.add_argument("--factors", nargs="+", choices=EDITED, default=list(EDITED))
    parser.add_argument("--count", type=int, default=60, help="scenes")
    parser.add_argument("--each", type=int, default=len(EDITED), help="factors edited in a scene, taken in turn; fewer cost less")
    parser.add_argument("--distribution", default="full")
    parser.add_argument("--split", default="report", choices=("report", "tune"), help="tune is for choosing settings")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="options of the editor")
    parser.add_argument("--sweep", action="store_true", help="choose settings on tune first")
    parser.add_argument("--tried", type=int, default=40, help="scenes of tune that settings are tried on")
    parser.add_argument("--records", type=Path, help="file that gets every candidate's judgement")
    for bar in ("image_image", "image_text", "directional"):
        parser.add_argument(f"--{bar.replace('_', '-')}", type=float, default=BARS[bar])
    parser.add_argument("--device", default="cpu")
    add_keep(parser)
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    bars = QualitySpec(image_image=given.image_image, image_text=given.image_text, directional=given.directional)
    results = swept(given, given.records) if given.sweep else plain(given, bars)
    if given.keep:
        about = (
            "What accepted edits of the lab's scenes change and keep, by a checker that took no part; garments of the report "
            "split, 95 % intervals."
        )
        details = {inversion: {name: found[name] for name in ("settings", "bars")} for inversion, found in results.items()}
        print(keep(given.keep, rows(results), command=command("bench.faithfulness"), about=about, details=details))
    held = [Reading(**one).holds is not False for found in results.values() for one in found["readings"]]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
