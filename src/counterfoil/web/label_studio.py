"""A review as Label Studio tasks with the votes as annotations, and annotations made there as votes."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import BadData, CounterfoilError
from counterfoil.core.tables import read_json
from counterfoil.web.access import clean_name, invite
from counterfoil.web.database import CastVote, Invited, Review, ReviewItem
from counterfoil.web.review import ImageAnswer, vote
from counterfoil.web.runs import image_file

CONFIG = """<View>
  <Header value="Is this there: $class" />
  <Image name="image" value="$image" zoom="true" />
  <Header value="Is the class there?" />
  <Choices name="present" toName="image" choice="single" showInline="true" required="true">
    <Choice value="yes" hotkey="y" /><Choice value="no" hotkey="n" /><Choice value="can't tell" hotkey="u" />
  </Choices>
  <Header value="Is it the only main object?" />
  <Choices name="single" toName="image" choice="single" showInline="true"><Choice value="yes" /><Choice value="no" /></Choices>
  <Header value="Is the image usable?" />
  <Choices name="usable" toName="image" choice="single" showInline="true"><Choice value="yes" /><Choice value="no" /></Choices>
  <TextArea name="comment" toName="image" placeholder="Comment" maxSubmissions="1" />
</View>
"""
"""The labelling interface that goes with the tasks."""

_WORDS: dict[str, bool | None] = {"yes": True, "no": False, "can't tell": None}
_QUESTIONS = ("present", "single", "usable")


def export_tasks(db: Transaction, review: Review, path: Path, *, run: Path, embed: bool = False) -> int:
    """Write one task per image into a file and answer how many; images by path for Label Studio's local storage, or embedded.

    Known answers are tasks like any other, so that reviewers cannot tell them apart.
    """
    count = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            for count, task in enumerate(_tasks_of(db, review, run=run, embed=embed), start=1):
                file.write(("[\n" if count == 1 else ",\n") + json.dumps(task))
            file.write("\n]\n" if count else "[]\n")
        path.with_suffix(".xml").write_text(CONFIG, encoding="utf-8")
    except OSError as error:
        raise BadData(f"{path}: tasks cannot be written ({error.strerror}); choose another file") from None
    return count


def _tasks_of(db: Transaction, review: Review, *, run: Path, embed: bool) -> Iterator[dict[str, Any]]:
    annotations: dict[int, list[dict[str, Any]]] = {}
    query = select(CastVote, Invited).join(Invited, Invited.id == CastVote.reviewer_id)
    for each, reviewer in db.execute(query.where(Invited.review_id == review.id, CastVote.withdrawn.is_(None))):
        annotations.setdefault(each.item_id, []).append(_annotation(each, reviewer))
    for item in db.scalars(select(ReviewItem).where(ReviewItem.review_id == review.id).order_by(ReviewItem.position)):
        if embed or not (run / item.file).is_file():  # a packed image has no file to point at
            image = "data:image/png;base64," + base64.b64encode(image_file(run, item.file).read_bytes()).decode()
        else:
            image = f"/data/local-files/?d={quote(f'{review.run}/{item.file}')}"
        data = {"class": item.class_name, "trial_id": item.trial_id, "picture": item.which, "label": item.label}
        yield {
            "id": item.id, "data": {"image": image, **data}, "annotations": annotations.get(item.id, []), "predictions": [],
        }  # fmt: skip


def _annotation(given: CastVote, reviewer: Invited) -> dict[str, Any]:
    def result(name: str, kind: str, **value: Any) -> dict[str, Any]:
        return {"id": name, "from_name": name, "to_name": "image", "type": kind, "value": value}

    words = {value: word for word, value in _WORDS.items()}
    answered = [name for name in _QUESTIONS if not given.skipped and (name == "present" or getattr(given, name) is not None)]
    results = [result(name, "choices", choices=[words[getattr(given, name)]]) for name in answered]
    return {
        "id": given.id,
        "completed_by": {"id": reviewer.id, "email": "", "first_name": reviewer.name, "last_name": ""},
        "was_cancelled": given.skipped,
        "created_at": datetime.fromtimestamp(given.created / 1000, UTC).isoformat(),
        "result": results + ([result("comment", "textarea", text=[given.comment])] if given.comment else []),
    }


@dataclass
class ImportedVotes:
    """Counts of the votes that came in and, by reason, of what was left out."""

    votes: int = 0
    reviewers: set[str] = field(default_factory=set)
    problems: Counter[str] = field(default_factory=Counter)


def import_votes(db: Transaction, review: Review, path: Path) -> ImportedVotes:
    """Enter the annotations of a Label Studio export (JSON) as votes."""
    content = read_json(path)
    if not isinstance(content, list):
        raise BadData(f"{path}: a Label Studio export is a list of tasks, got {type(content).__name__}; export as JSON")
    done = ImportedVotes()
    known = {each.name: each for each in db.scalars(select(Invited).where(Invited.review_id == review.id))}
    for task in content:
        item = _item(db, review, _mapping(_mapping(task).get("data")))
        if item is None:
            done.problems["a task about no image of this review"] += 1
            continue
        for annotation in filter(None, map(_mapping, _list(task.get("annotations")))):
            try:
                name, answer = clean_name(_author(annotation)), _answer(annotation)
                if name not in known:
                    known[name], _ = invite(db, review, name)
                if not vote(db, review, known[name].id, item=item, answer=answer, asked=False):
                    raise BadData("an answer about an image that has all its votes")
            except CounterfoilError as error:
                done.problems[str(error)] += 1
                continue
            done.votes += 1
            done.reviewers.add(name)
    return done


def _item(db: Transaction, review: Review, data: Mapping[str, Any]) -> int | None:
    trial, which, label = data.get("trial_id"), data.get("picture"), data.get("label")
    texts = isinstance(trial, str) and isinstance(which, str) and "\0" not in trial + which
    if not texts or type(label) is not int or abs(label) >= 2**31:
        return None
    mine = (ReviewItem.review_id == review.id, ReviewItem.trial_id == trial, ReviewItem.which == which, ReviewItem.label == label)
    return db.scalar(select(ReviewItem.id).where(*mine))


def _author(annotation: Mapping[str, Any]) -> str:
    who = annotation.get("completed_by")
    if isinstance(who, Mapping):
        full = " ".join(str(who.get(part) or "") for part in ("first_name", "last_name")).strip()
        who = full or who.get("email") or who.get("id")
    return f"annotator {who}" if isinstance(who, int) else str(who or "annotator")


def _answer(annotation: Mapping[str, Any]) -> ImageAnswer:
    if annotation.get("was_cancelled"):
        return ImageAnswer(skipped=True)
    given: dict[str, Any] = {}
    for each in map(_mapping, _list(annotation.get("result"))):
        name, value = each.get("from_name"), _mapping(each.get("value"))
        if name == "comment" and value:
            given["comment"] = _first(value.get("text")).replace("\0", "")[:2000]
        elif name in _QUESTIONS and value:
            if (word := _first(value.get("choices"))) not in _WORDS:
                raise BadData(f"an answer that is not yes, no or can't tell to the question {name!r}")
            given[name] = _WORDS[word]
    if "present" not in given:
        raise BadData("an annotation that does not say whether the class is there")
    return ImageAnswer(**given)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(texts: Any) -> str:
    """The first of several texts, or the only one; empty for anything else."""
    first = texts[0] if isinstance(texts, list) and texts else texts
    return first if isinstance(first, str) else ""
