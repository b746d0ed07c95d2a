"""How faithful the lab's edits are: is the asked-for change there, is everything else as it was?

    python -m bench.faithfulness [--inversion NAME …] [--count 60] [--each 7] [--device cuda] [--set KEY=VALUE …] [--keep NAME]

Scenes with known attributes are inverted under their true caption; one factor at a time gets another value, the picture is
edited, the best of the sweep that passes quality control is kept if the oracle still sees the garment. The attribute checker,
which took no part, then reads every attribute off the kept pictures. Shares are of
accepted edits, with Wilson's 95 % interval. Beside them: how near a plain reconstruction comes to what the autoencoder alone
leaves of a picture.

Exit code 1 if a demand is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from bench.edit_audit import Audit
from bench.results import add_keep, command, keep
from lab.training.edit_faithfulness import Edit, Outcome, by_factor, margin, readings

from counterfoil.core.spec import part
from counterfoil.parts.editors.inversion import INVERSIONS
from counterfoil.protocols.lance.spec import QualitySpec
from counterfoil_lab.checker import Reading
from counterfoil_lab.parts import BARS
from counterfoil_lab.parts import editor as lab_editor

EDITED = ("background", "colour", "material", "texture", "object", "domain", "weather")
MEASURED = ("null-text", "negative-prompt", "edit-friendly")


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
    parser.add_argument("--records", type=Path, help="file that gets every candidate's judgement")
    for bar in ("image_image", "image_text", "directional"):
        parser.add_argument(f"--{bar.replace('_', '-')}", type=float, default=BARS[bar])
    parser.add_argument("--device", default="cpu")
    add_keep(parser)
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    bars = QualitySpec(image_image=given.image_image, image_text=given.image_text, directional=given.directional)
    results = plain(given, bars)
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
