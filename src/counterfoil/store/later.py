"""Answers that are added to a run later: rows of other models and oracles, who gave them, and a review by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from counterfoil.core.errors import BadRun, one_line
from counterfoil.core.records import Picture, Prediction, Verdict
from counterfoil.store.chunks import RESULTS, Chunk, ChunkBuilder, Contents, numbers
from counterfoil.store.files import canonical, hold, read_as, remove, write_whole, writing
from counterfoil.store.tables import read_rows

ASKED = "asked.json"
REVIEW = "review.json"
HUMAN = "human"

Role = Literal["model", "oracle"]
_ROLES: dict[str, Role] = {"predictions": "model", "verdicts": "oracle"}  # whose answers a table holds, and its column for them


class Appender:
    """Takes rows and commits them in chunks of their own. `append_to` makes one and holds the run's lock meanwhile."""

    def __init__(self, root: Path, *, chunk_rows: int, own: Collection[str]) -> None:
        self._root, self._chunk_rows, self._own = root, chunk_rows, own
        self._contents = Contents.of(root)
        self._begin()

    @property
    def outdated(self) -> bool:
        """Tell whether the run's own model or oracle has answered since its results were computed."""
        return self._contents.outdated

    def add(self, *, predictions: Sequence[Prediction] = (), verdicts: Sequence[Verdict] = ()) -> None:
        """Take some rows."""
        names = {row.model for row in predictions} | {row.oracle for row in verdicts}
        if not names.isdisjoint(self._own) and (self._root / RESULTS).exists() and not self.outdated:
            self._save(outdated=True)  # before the rows: a kill must not leave results that seem to include them
        self._waiting.add_rows(predictions=predictions, verdicts=verdicts)
        if self._waiting.rows >= self._chunk_rows:
            self.commit()

    def commit(self) -> None:
        """Commit the rows taken since the last chunk, or leave no trace of them."""
        if self._waiting.rows:
            try:
                self._waiting.close().commit(self._root, self._number, mark=self._contents.mark)
            except BaseException:
                self._waiting.discard(self._number)
                raise
            finally:
                self._begin()

    def close(self, results: Mapping[str, Any] | None = None) -> None:
        """Write the results, if they were computed again, and note which chunks the run is made of."""
        if results is not None:
            with writing(self._root):
                write_whole(self._root / RESULTS, canonical(results))
        self._save(outdated=self.outdated and results is None)

    def _begin(self) -> None:
        self._number = max(numbers(self._root), default=-1) + 1
        self._waiting = ChunkBuilder(self._root, f"{self._number:06d}")

    def _save(self, *, outdated: bool) -> None:
        self._contents = self._contents.update(self._root, outdated=outdated)


@contextmanager
def append_to(root: Path, *, chunk_rows: int, own: Collection[str] = ()) -> Iterator[Appender]:
    """Hold the run's lock and take rows; those taken before an exception are kept.

    `own` are the models and oracles that the run's results are about.
    """
    with hold(root):
        appender = Appender(root, chunk_rows=chunk_rows, own=own)
        try:
            yield appender
        finally:
            appender.commit()
            appender.close()


def carry_over(root: Path, old: Sequence[Chunk], new: Sequence[Chunk]) -> tuple[list[ChunkBuilder], Counter[tuple[str, str]]]:
    """Later answers about images that new trials still show, for each old chunk with any, and how many others there were.

    The numbers of dropped rows are by role and name. A review that counts some of them is removed.
    """
    dropped: Counter[tuple[str, str]] = Counter()
    later = [chunk for chunk in old if "trials" not in chunk.tables]
    before, now = (_images_of(root, chunks) if later else {} for chunks in (old, new))
    carried = []
    for chunk in later:
        builder = ChunkBuilder(root, f"{chunk.token}-carried")
        for table in chunk.tables:
            for row in read_rows(chunk.table_path(root, table), table):
                key = row.trial_id, row.picture
                if key in before and before[key] == now.get(key):
                    builder.add_rows(**{table: [row]})
                else:
                    dropped[_ROLES[table], getattr(row, _ROLES[table])] += 1
        carried += [builder] if builder.rows else []
    if any(role == "oracle" and by_people(name) for role, name in dropped):
        remove(root / REVIEW)
    return carried, dropped


def _images_of(root: Path, chunks: Sequence[Chunk]) -> dict[tuple[str, str], str]:
    """Names of all images of the trials in some chunks, which are hashes of their content, by trial and kind."""
    trials = (
        each for chunk in chunks if "trials" in chunk.tables for each in read_rows(chunk.table_path(root, "trials"), "trials")
    )
    kinds: tuple[Picture, ...] = get_args(Picture)
    return {(trial.trial_id, kind): name for trial in trials for kind in kinds if (name := trial.shows(kind))}


@dataclass(frozen=True)
class AskedPart:
    """A model or oracle that was asked later. `caution` says why it is not independent of the run, or nothing."""

    role: Role
    name: str  # what its answers are stored under
    provenance: Mapping[str, str]
    caution: str = ""
    part: Mapping[str, Any] = field(default_factory=dict)  # its own name and options


def asked_of(run: Path) -> list[AskedPart]:
    """The models and oracles that were asked later, sorted by their names."""
    path = run / ASKED
    try:
        return list(read_as(list[AskedPart], path)) if path.exists() else []
    except ValueError as error:
        raise BadRun(f"{path}: damaged ({type(error).__name__}); delete it and ask again, by 'judge' or 'score'") from None


def record(run: Path, part: AskedPart) -> None:
    """Enter a model or oracle, in place of an earlier one of its role and name. Only the holder of the run's lock may."""
    every = {(each.role, each.name): each for each in asked_of(run)}
    every[part.role, part.name] = part
    with writing(run):
        write_whole(run / ASKED, canonical([asdict(every[key]) for key in sorted(every)]))


def by_people(oracle: str) -> bool:
    """Tell whether an oracle of that name is people."""
    return oracle.partition(":")[0] == HUMAN


def review_of(run: Path) -> dict[str, Any] | None:
    """Numbers of a run's review by people, without names; None where there was none."""
    path = run / REVIEW
    try:
        return dict(read_as(dict[str, Any], path)) if path.exists() else None
    except ValueError as error:
        raise BadRun(f"{path}: not the account of a review ({one_line(error)}); write the verdicts again") from None


def review_lines(found: dict[str, Any]) -> list[str]:
    """The review in sentences."""
    counts, people, sentinels = found["pictures"], found["reviewers"], found["sentinels"]
    lines = [
        f"{people['counted']} reviewers, {found['votes_a_picture']} votes per image: {counts['kept']} kept, "
        f"{counts['rejected']} rejected, {counts['undecided']} undecided"
    ]
    if sentinels["answered"] or people["left_out"]:
        left = f"; {people['left_out']} below the bar of {100 * sentinels['bar']:.0f} % left out" if people["left_out"] else ""
        lines.append(f"sentinels: {sentinels['right']} of {sentinels['answered']} answered right{left}")
    keep = found["agreement"]["keep"]
    if keep["raw"]["value"] is not None:
        alpha, note = keep["alpha"]["value"], keep["alpha"].get("note", "undefined")
        measured = f"Krippendorff's alpha {alpha:.2f}" if alpha is not None else f"no alpha ({note})"
        lines.append(
            f"agreement on keeping an image: {measured}, {keep['raw']['value']:.1f} % of pairs agree (n {keep['raw']['n']})"
        )
    return lines
