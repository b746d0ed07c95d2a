"""Reviews as Label Studio tasks, with the votes as annotations, and annotations made there as votes here."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from counterfoil.core.errors import BadData, CounterfoilError
from counterfoil.web.catalogue import picture_file
from counterfoil.web.database import Item, Review, Reviewer, Vote
from counterfoil.web.review.people import cleaned, invite
from counterfoil.web.review.voting import Answer, vote

CONFIG = """<View>
  <Header value="Is this there: $class" />
  <Image name="picture" value="$image" zoom="true" />
  <Header value="Is the class there?" />
  <Choices name="present" toName="picture" choice="single" showInline="true" required="true">
    <Choice value="yes" hotkey="y" /><Choice value="no" hotkey="n" /><Choice value="can't tell" hotkey="u" />
  </Choices>
  <Header value="Is it one class?" />
  <Choices name="single" toName="picture" choice="single" showInline="true"><Choice value="yes" /><Choice value="no" /></Choices>
  <Header value="Is the picture usable?" />
  <Choices name="usable" toName="picture" choice="single" showInline="true"><Choice value="yes" /><Choice value="no" /></Choices>
  <TextArea name="comment" toName="picture" placeholder="Comment" maxSubmissions="1" />
</View>
"""
"""The labelling interface that goes with the tasks."""

_WORDS: dict[str, bool | None] = {"yes": True, "no": False, "can't tell": None}
_QUESTIONS = ("present", "single", "usable")


def export(
    transaction: Transaction, review: Review, *, run: Path, pictures: Literal["files", "embed"] = "files"
) -> Iterator[dict[str, Any]]:
    """One task a picture. `files` names them for Label Studio's local storage, `embed` puts them into the tasks.

    Sentinels are tasks like any other, so that whoever answers them cannot tell.
    """
    given: dict[int, list[tuple[Vote, Reviewer]]] = {}
    query = select(Vote, Reviewer).join(Reviewer, Reviewer.id == Vote.reviewer_id)
    for each, reviewer in transaction.execute(query.where(Reviewer.review_id == review.id, Vote.withdrawn.is_(None))):
        given.setdefault(each.item_id, []).append((each, reviewer))
    for item in transaction.scalars(select(Item).where(Item.review_id == review.id).order_by(Item.position)):
        yield {
            "id": item.id,
            "data": {
                "image": _address(review, run, item, pictures),
                "class": item.class_name,
                "trial_id": item.trial_id,
                "picture": item.picture,
                "label": item.label,
            },
            "annotations": [_annotation(*entry) for entry in given.get(item.id, [])],
            "predictions": [],
        }


def write_tasks(transaction: Transaction, review: Review, *, run: Path, path: Path, pictures: Literal["files", "embed"]) -> int:
    """Write the tasks into a file, one at a time; answers how many."""
    count = -1  # the last piece closes the list
    try:
        with path.open("w", encoding="utf-8") as file:
            for piece in as_json(export(transaction, review, run=run, pictures=pictures)):
                file.write(piece)
                count += 1
    except OSError as error:
        raise BadData(f"{path}: tasks cannot be written ({error.strerror}); choose another file") from None
    return count


def as_json(tasks: Iterator[dict[str, Any]]) -> Iterator[str]:
    """A list of tasks as JSON, piece by piece."""
    between = "[\n"
    for task in tasks:
        yield between + json.dumps(task)
        between = ",\n"
    yield "[]\n" if between == "[\n" else "\n]\n"


@dataclass
class Imported:
    """What came in, and what did not, with reasons."""

    votes: int = 0
    reviewers: set[str] = field(default_factory=set)
    problems: Counter[str] = field(default_factory=Counter)


def import_votes(transaction: Transaction, review: Review, path: Path) -> Imported:
    """Enter the annotations of a Label Studio export (JSON) as votes. What cannot be used is counted by its reason."""
    done = Imported()
    known: dict[str, Reviewer] = {
        each.name: each for each in transaction.scalars(select(Reviewer).where(Reviewer.review_id == review.id))
    }
    for task in _tasks(path):
        item = _item(transaction, review, task)
        if item is None:
            done.problems["a task about no picture of this review"] += 1
            continue
        for annotation in _annotations(task):
            try:
                name, answer = cleaned(_who(annotation)), _answer(annotation)
                if name not in known:
                    known[name], _ = invite(transaction, review, name)
            except CounterfoilError as error:
                done.problems[str(error)] += 1
                continue
            vote(transaction, review, known[name].id, item=item, answer=answer)
            done.votes += 1
            done.reviewers.add(name)
    return done


def _address(review: Review, run: Path, item: Item, pictures: str) -> str:
    if pictures == "files" and (run / item.file).is_file():  # a picture in a pack has no file to point at
        return f"/data/local-files/?d={quote(f'{review.run}/{item.file}')}"
    return "data:image/png;base64," + base64.b64encode(picture_file(run, item.file).read_bytes()).decode()


def _annotation(given: Vote, reviewer: Reviewer) -> dict[str, Any]:
    words = {value: word for word, value in _WORDS.items()}
    result = [
        _result(name, "choices", {"choices": [words[getattr(given, name)]]})
        for name in _QUESTIONS
        if not given.skipped and (name == "present" or getattr(given, name) is not None)
    ]
    if given.comment:
        result.append(_result("comment", "textarea", {"text": [given.comment]}))
    return {
        "id": given.id,
        "completed_by": {"id": reviewer.id, "email": "", "first_name": reviewer.name, "last_name": ""},
        "was_cancelled": given.skipped,
        "created_at": datetime.fromtimestamp(given.created / 1000, UTC).isoformat(),
        "result": result,
    }


def _result(name: str, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": name, "from_name": name, "to_name": "picture", "type": kind, "value": dict(value)}


def _tasks(path: Path) -> list[Mapping[str, Any]]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise BadData(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise BadData(f"{path}: not JSON; export from Label Studio as JSON") from None
    if not isinstance(content, list):
        raise BadData(f"{path}: a Label Studio export is a list of tasks, got {type(content).__name__}")
    return [task if isinstance(task, Mapping) else {} for task in content]


def _item(transaction: Transaction, review: Review, task: Mapping[str, Any]) -> int | None:
    data = task.get("data")
    if not isinstance(data, Mapping):
        return None
    trial, picture, label = data.get("trial_id"), data.get("picture"), data.get("label")
    if not isinstance(trial, str) or not isinstance(picture, str) or type(label) is not int or abs(label) >= 2**31:
        return None
    if "\0" in trial + picture:
        return None
    query = select(Item.id).where(Item.review_id == review.id, Item.trial_id == trial, Item.picture == picture)
    return transaction.scalar(query.where(Item.label == label))


def _annotations(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = task.get("annotations")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _who(annotation: Mapping[str, Any]) -> str:
    who = annotation.get("completed_by")
    if isinstance(who, Mapping):
        full = " ".join(str(who.get(part) or "") for part in ("first_name", "last_name")).strip()
        who = full or who.get("email") or who.get("id")
    return f"annotator {who}" if isinstance(who, int) else str(who or "annotator")


def _answer(annotation: Mapping[str, Any]) -> Answer:
    if annotation.get("was_cancelled"):
        return Answer(skipped=True)
    said: dict[str, Any] = {}
    for each in annotation.get("result") or ():
        name, value = (each.get("from_name"), each.get("value")) if isinstance(each, Mapping) else (None, None)
        if not isinstance(value, Mapping):
            continue
        if name in _QUESTIONS:
            word = next(iter(value.get("choices") or ("",)))
            if word not in _WORDS:
                raise BadData(f"an answer that is not yes, no or can't tell to the question {name!r}")
            said[name] = _WORDS[word]
        elif name == "comment":
            text = value.get("text")
            said["comment"] = str(text[0] if isinstance(text, list) and text else text or "").replace("\0", "")[:2000]
    if "present" not in said:
        raise BadData("an annotation that does not say whether the class is there")
    return Answer(**said)
