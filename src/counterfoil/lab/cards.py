"""`python -m counterfoil.lab.cards`: write each lab model's card from what was measured and how it was trained.

With `--again FOLDER`, the card of the model that ships also tells of another, which the recipe made from the start once more and
which was measured where it lies: what it took, and whether it came out as good.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadData, UsageError
from counterfoil.lab import timing
from counterfoil.lab.about import ABOUT
from counterfoil.lab.commands import errors_in_a_line
from counterfoil.lab.garments import shipped, usable
from counterfoil.lab.measure import MEASURES, WORDS_ALONE, command
from counterfoil.lab.measures.bench import FRESH, REPORT, WHOLE
from counterfoil.lab.measures.record import FILES, Record
from counterfoil.lab.places import WEIGHTS, known
from counterfoil.lab.readings import Reading

AGAIN = "again.json"
SLOW_START = 10  # seconds until the first step that a card speaks of
_WHOSE = {"vae": "its autoencoder: "}
TITLES = {
    REPORT: "Measured on unseen {} (`report`)",
    FRESH: "Measured again on others (`fresh`)",
    WHOLE: "Measured with nothing left out (`whole`)",
}


def card(name: str, folder: Path) -> str:
    """The text of a model's card."""
    if not (folder / FILES[REPORT]).is_file():
        raise BadData(f"{folder} has no {FILES[REPORT]}; run 'python -m counterfoil.lab.measure {name} --keep'")
    what, data, use = ABOUT[name]
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors")) / 1e6
    lines = [f"# lab:{name}", "", what, ""]
    lines += [f"- **Data**: {data}{'' if name == 'rewriter' else f' {_garments()}'}"]
    lines += [f"- **Use**: {use} It knows the lab's world and nothing else."]
    lines += [f"- **Size**: {size:.1f} MB of float16 safetensors; compute in float32."]
    lines += [f"- **Training**: {'; '.join(_training(folder))}."]
    lines += [f"- **Recipe**: {_recipe(name)}"]
    lines += [
        "- **Choices**: the split `tune`, which is not shown, is there to choose by; where another was used, Training says so."
    ]
    lines += ["- **Licence**: that of this package."]
    for split, file in FILES.items():
        if (folder / file).is_file():
            record = Record.read(folder / file)
            title = TITLES[split].format("captions" if name in WORDS_ALONE else "garments")
            lines += ["", f"## {title}", "", f"{_explained(name, split)} {_made_by(name, record)}", ""]
            lines += _table(record.readings)
    if (folder / timing.FILE).is_file():
        lines += ["", *_times(name, json.loads((folder / timing.FILE).read_text(encoding="utf-8")))]
    if (folder / AGAIN).is_file():
        lines += ["", *_made_again(name, json.loads((folder / AGAIN).read_text(encoding="utf-8")))]
    return "\n".join(lines) + "\n"


def keep_again(name: str, made: Path, *, weights: Path) -> None:
    """Put what a model made again took, and what was measured of it, beside the one that ships."""
    files = {"training": "training.json", REPORT: FILES[REPORT], FRESH: FILES[FRESH]}
    missing = [file for file in files.values() if not (made / file).is_file()]
    if missing:
        raise BadData(
            f"{made} has no {' and no '.join(missing)}; "
            f"train lab:{name} into it and measure it on {REPORT} and {FRESH} with --keep"
        )
    record = {part: json.loads((made / file).read_text(encoding="utf-8")) for part, file in files.items()}
    inside = {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in made.glob("*/training.json")}
    record |= {"inside": inside} if inside else {}
    (weights / name / AGAIN).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _garments() -> str:
    kept, every = usable("train")
    left_out = 100 * (every - kept) / every
    return (
        f"Garments are those of Fashion-MNIST's training split (MIT licence), {kept:,} of {every:,}: the {left_out:.0f} % that "
        "are small, patterned or untypical of their class are left out, by the rule in docs/lab.md."
    )


def _explained(name: str, split: str) -> str:
    """What is in the scenes of a split."""
    kept, every = usable("test")
    known_ones = {part: len(shipped(part)) for part in (REPORT, "tune")}
    if name in WORDS_ALONE:
        return "The model is given the words of scenes and sees no garment."
    if split == REPORT:
        return (
            f"Scenes of {known_ones[REPORT]:,} garments, which ship, of the {kept:,} usable ones among the {every:,} of the "
            "eight classes in Fashion-MNIST's test split."
        )
    if split == FRESH:
        return (
            f"Scenes, from a seed of their own, of the {kept - sum(known_ones.values()):,} usable garments of the test split "
            "that do not ship. Nothing was trained on them; if something was chosen by them, Training says so."
        )
    return (
        f"Scenes of all {every:,} test garments of the eight classes as published, those that ship and the {every - kept:,} "
        f"({100 * (every - kept) / every:.0f} %) that are small, patterned or untypical of their class included. "
        "No target is set."
    )


def _made_by(name: str, record: Record) -> str:
    if not record.count:
        return f"Scenes from seed {record.seed}."
    with_torch = f", torch {record.versions['torch']}" if "torch" in record.versions else ""
    return f"`{command(name, record)}` on {record.machine}{with_torch}; scenes from seed {record.seed}."


def _table(readings: Sequence[Reading]) -> list[str]:
    head = ["| what | value | 95 % interval | n | target |", "|---|---|---|---|---|"]
    return [*head, *(_row(reading, decimals=1) for reading in readings)]


def _times(name: str, record: dict[str, Any]) -> list[str]:
    readings = [Reading(**reading) for reading in record["readings"]]
    return [
        "## Time on a CPU",
        "",
        f"`python -m counterfoil.lab.timing {name}` with {record['threads']} threads on {record['machine']}, "
        f"torch {record['versions']['torch']}. Loading is in a fresh interpreter, imports apart.",
        "",
        "| what | median | range | times | target |",
        "|---|---|---|---|---|",
        *(_row(reading, decimals=2) for reading in readings),
    ]


def _made_again(name: str, record: dict[str, Any]) -> list[str]:
    training = record["training"]
    took = f"{_trained(training)}{_shortened(training)}{_note(training)}"
    lines = [
        "## Made again by its recipe, from the start",
        "",
        f"Not the weights that ship, but others that the recipe gave: {took}.",
        *(f"Before it, {_WHOSE[part]}{_trained(inner)}{_note(inner)}." for part, inner in record.get("inside", {}).items()),
    ]
    for split in (REPORT, FRESH):
        if split in record:
            measured = Record.parse(record[split])
            lines += ["", f"On `{split}`. {_made_by(name, measured)}", "", *_table(measured.readings)]
    return lines


def _training(folder: Path) -> Iterator[str]:
    """How the model in a folder was trained, and any that lies in it."""
    own = folder / "training.json"
    for path in [own, *sorted(set(folder.rglob("training.json")) - {own})]:
        if path.is_file():
            record = json.loads(path.read_text(encoding="utf-8"))
            whose = f"before it, {_WHOSE[path.parent.name]}" if path != own else ""
            yield f"{whose}{_trained(record)}{_note(record)}"


def _note(record: dict[str, Any]) -> str:
    return f"; {record['note']}" if "note" in record else ""


def _trained(record: dict[str, Any]) -> str:
    stages = ", then ".join(
        f"{stage['steps']:,} steps of {stage['batch']} in {stage['seconds']} s{_slow_start(stage)}" for stage in record["stages"]
    )
    shared = ", shared with other runs" if record.get("shared") else ""
    return f"{stages} on one {record['machine']}{shared} (seed {record['seed']})"


def _slow_start(stage: dict[str, Any]) -> str:
    """What compiling and reading took before the first step, which the seconds leave out, if it is worth a word."""
    first = stage.get("first_step_seconds", 0)
    return f" (and {first} s until the first step)" if first >= SLOW_START else ""


def _shortened(record: dict[str, Any]) -> str:
    """That a run was given a time, or took another number of steps than the recipe has, if so."""
    if "minutes" in record["stages"][-1]:
        return f", for {record['stages'][-1]['minutes']:g} minutes, over which its schedule was stretched"
    taken, asked = sum(stage["steps"] for stage in record["stages"]), record["stages"][-1].get("schedule", {}).get("steps")
    return f", where the recipe has {asked:,} steps" if asked is not None and asked != taken else ""


def _recipe(name: str) -> str:
    steps = ("autoencoder", "diffusion") if name == "diffusion" else (name,)
    return ", then ".join(f"`python -m counterfoil.lab.train {step} --device cuda --compile`" for step in steps)


def _row(reading: Reading, *, decimals: int) -> str:
    target = ""
    if reading.holds is not None:
        bound = f"≥ {reading.at_least:g}" if reading.at_least is not None else f"≤ {reading.at_most:g}"
        target = f"{bound}: {'met' if reading.holds else 'missed'}"
    value, low, high = (f"{number:.{decimals}f}" for number in (reading.value, reading.low, reading.high))
    return f"| {reading.name} | {value} {reading.unit} | {low} to {high} | {reading.n:,} | {target} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the cards."""
    parser = argparse.ArgumentParser(
        prog="python -m counterfoil.lab.cards", description="Write the lab's model cards from what was measured and kept."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MEASURES)}")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FOLDER", help="the models; default: those that ship")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="tell of this one, made again and measured; for one NAME")
    given = parser.parse_args(arguments)
    with errors_in_a_line():
        names = [known(name, MEASURES) for name in given.names]
        if given.again is not None and len(names) != 1:
            raise UsageError("--again is about one model; name it")
        if given.again is not None:
            keep_again(names[0], given.again, weights=given.weights)
        for name in names or MEASURES:
            folder = given.weights / name
            (folder / "README.md").write_text(card(name, folder), encoding="utf-8")
            print(folder / "README.md")


if __name__ == "__main__":
    main()
