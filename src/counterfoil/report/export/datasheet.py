"""The page that goes with a set: what it is, how it was made, what it is good for and what not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from counterfoil.report.export.about import UNSTATED, About
from counterfoil.report.export.pictures import Picture
from counterfoil.store.reviewed import review_lines

_HOW = {
    "imagenet-d": "A painter drew every picture from a prompt that puts an object into a background, texture or material. Models,"
    " the surrogates, looked at them, and what enough of them missed was kept if an oracle still saw the object.",
    "lance": "Photos were described, one factor of each description was rewritten, and the photo was edited to match. What passed"
    " the quality checks was kept if an oracle still saw the class.",
    "fmr": "Photos were changed step by step so that one classifier errs, in a generator's space, as long as an oracle still saw "
    "the class.",
}


def datasheet(about: About, pictures: Sequence[Picture], *, layout: Sequence[str], front: str = "") -> str:
    """The page, in Markdown. `layout` are lines on what lies where; `front` is metadata that has to open the file."""
    people = sum(picture.people == "yes" for picture in pictures)
    lines = [f"# {about.name}", "", f"{about.description}."]
    lines += ["", "## What it holds", "", *(f"- {line}" for line in layout), "", "| kind | pictures |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in about.counts.items()]
    named = Counter(picture.class_name for picture in pictures)
    fewest, most = min(named.values()), max(named.values())
    lines += ["", f"{len(named)} classes with {fewest} to {most} pictures each."]
    lines += ["", "## How it was made", "", _HOW.get(about.protocol, "See the run's specification.")]
    lines += ["", *(f"- {role}: `{name}`" for role, name in about.parts.items())]
    lines += [f"- surrogates: {', '.join(f'`{name}`' for name in about.surrogates)}"] if about.surrogates else []
    lines += [f"- seed {about.seed}, {about.program}, code {about.code[:12] or UNSTATED}"]
    lines += ["", "## Checked by", ""]
    lines += [f"- people: {people} of {len(pictures)} pictures" if people else "- no person has looked at these pictures"]
    lines += [f"- {line}" for line in review_lines(dict(about.review))] if about.review else []
    lines += [f"- oracle `{about.parts['oracle']}`"] if "oracle" in about.parts else []
    lines += ["", "## What it is for, and what not", ""]
    lines += ["- Comparing classifiers on pictures unlike those they were trained on. Not for training the models it shall test."]
    if about.surrogates:
        lines += [
            "- The set was chosen by the mistakes of its surrogates. Their accuracy on it says how it was made, not how good",
            "  they are; other models are tested fairly, those related to a surrogate less so.",
        ]
    lines += [
        "- The pictures are made by programs. They show what a painter or editor thinks things look like, its biases included."
    ]
    lines += ["", "## Licence", "", about.licence]
    if about.licence == UNSTATED:
        lines += ["", "Nobody has stated a licence. The terms of the parts named above may bind what is made with them."]
    lines += ["", about.note] if about.note else []
    return front + "\n".join(lines) + "\n"
