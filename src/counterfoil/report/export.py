"""Export the accepted images of a run as a dataset, with datasheet, provenance and checksums, and read its set file back."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from counterfoil.core.errors import BadData, UsageError, one_line, require
from counterfoil.core.naming import part_name, short_name
from counterfoil.core.records import Trial
from counterfoil.core.tables import escape_formula, read_json, unescape_formula
from counterfoil.metrics.observations import surrogates_of
from counterfoil.parts.labels import CLASSES_FILE
from counterfoil.report.page import program_version
from counterfoil.store import ImageFile, Run
from counterfoil.store.later import by_people, review_lines, review_of

SET_FILE = "set.json"
TABLE = "metadata.csv"
FORMAT = "counterfoil-set"
VERSION = 1
UNSTATED = "not stated"
SUMS = "SHA256SUMS"
CROISSANT = "croissant.json"
PARTIAL = ".partial"
SHARD = 1000  # images in one tar file or Parquet file
ROLES = ("painter", "generator", "editor", "captioner", "rewriter", "model", "data", "oracle")
CONTROLS = ("random", "source")  # arms that are not the test's
COLUMNS = {
    "file_name": "where the image is, below the set",
    "label": "number of its class",
    "class": "name of its class",
    "kind": "kind of nuisance, or the factor that was changed",
    "nuisance": "the nuisance itself, or the new value of the factor",
    "prompt": "the words it was made from",
    "caption": "the words for the image it was made from",
    "seed": "seed of its noise",
    "trial": "its id in the run",
    "source": "the image it was made from",
    "sha256": "hash of the file",
    "oracle": "whether the oracle sees the class: yes, no, or empty",
    "people": "whether people accept it: yes, no, or empty",
}
"""The set's table, with the meaning of each column."""

_HOW = {
    "painted": "A painter drew each image from a prompt that puts an object into a background, texture or material. Models,"
    " the surrogates, were shown the images; what enough of them got wrong was kept if an oracle still saw the object.",
    "edited": "Photos were captioned, one factor of each caption was rewritten, and the photo was edited to match. What passed"
    " the quality checks was kept if an oracle still saw the class.",
    "guided": "Photos were changed step by step in a generator's space so that one classifier errs, for as long as an oracle"
    " still saw the class.",
}
"""By the arm that the images belong to."""

_SHARD = re.compile(r"(images-\d+)\.tar/(\d+)\.png")
_PARQUET = re.compile(r"data/test-\d+-of-\d+\.parquet#")

Watch = Callable[[int], None]


@dataclass(frozen=True)
class About:
    """A set as its set file has it, and what else the datasheet says of its images."""

    content: Mapping[str, Any]  # of the set file
    labels: Sequence[str]  # class names by label number
    arms: Sequence[str]
    counts: Mapping[str, int]  # images by kind
    by_class: Mapping[str, int]
    accepted_by_people: int

    @property
    def size(self) -> int:
        """The number of images."""
        return sum(self.counts.values())

    @property
    def classes(self) -> Sequence[Mapping[str, Any]]:
        """Name, folder and ids of the classes that have images."""
        found: Sequence[Mapping[str, Any]] = self.content["classes"]
        return found


@dataclass(frozen=True)
class ExportedImage:
    """One image of the set."""

    trial: Trial
    file: ImageFile  # in the run
    file_name: str  # in the set: the class's folder and a name of its own
    class_name: str
    oracle: str  # yes, no, or empty where the run's oracle leaves it open
    people: str  # the same for people

    @property
    def sha256(self) -> str:
        """The hash of the file, which is its name in the run."""
        return PurePosixPath(self.trial.image).stem

    def read(self) -> bytes:
        """Read the file, and refuse it where its content is not what the run stored."""
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.file}: {error.strerror}") from None

    def row(self) -> dict[str, Any]:
        """The image's row in the set's table. Line breaks in texts become spaces."""
        trial = self.trial
        values = (self.file_name, trial.label, self.class_name, trial.factor or trial.arm, trial.value, trial.prompt,
                  trial.caption, trial.seed, trial.trial_id, trial.source, self.sha256, self.oracle, self.people)  # fmt: skip
        said = dict(zip(COLUMNS, values, strict=True))
        return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in said.items()}


@dataclass(frozen=True)
class Written:
    """A set's images, written in one of the layouts."""

    files: str  # what lies where, for the datasheet
    names: Mapping[str, str] = field(default_factory=dict)  # names in the table, where they are not the usual ones
    front: str = ""  # what has to open the datasheet
    hashes: Mapping[str, str] = field(default_factory=dict)  # of files whose hash is known already


def export(
    run: Run,
    out: Path,
    *,
    layout: str = "folder",
    name: str | None = None,
    licence: str | None = None,
    note: str = "",
    croissant: bool = False,
    watch: Callable[[int, int], None] = lambda images, total: None,
) -> About:
    """Write the accepted images of a run as a dataset, whole or not at all.

    `watch` hears of images as they are written, and of how many there are.
    """
    if layout not in LAYOUTS:
        judged = ": to have them judged in Label Studio, use 'counterfoil review RUN --export FILE'" if "label" in layout else ""
        raise UsageError(f"no format named {layout!r}; there are {', '.join(LAYOUTS)}{judged}")
    if croissant and layout != "folder":
        raise UsageError(f"Croissant metadata describes a set in folders, not {layout}; leave out --croissant or --format")
    images = choose(run)
    about = describe(run, images, name=name or out.name, licence=licence, note=note)
    with _whole(out) as folder:
        written = LAYOUTS[layout](folder, about, images, lambda count: watch(count, len(images)))
        _write_table(folder / TABLE, images, written.names)
        (folder / CLASSES_FILE).write_text("".join(f"{label}\n" for label in about.labels), encoding="utf-8")
        (folder / SET_FILE).write_text(json.dumps(about.content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        lines = [written.files, f"`{TABLE}`: one row per image: {', '.join(COLUMNS)}"]
        lines += [f"`{CLASSES_FILE}`: class names by label number", f"`{SUMS}`: the SHA-256 of every file"]
        if croissant:
            lines.append(f"`{CROISSANT}`: the same for programs")
            _write_croissant(folder, about)
        (folder / "README.md").write_text(datasheet(about, files=lines, front=written.front), encoding="utf-8")
        _write_sums(folder, written.hashes)
    return about


def choose(run: Run) -> list[ExportedImage]:
    """Choose the images that are accepted: by people once they have judged any, else by the run's oracle.

    Of a run whose oracle is people, nothing is accepted before they have judged it.
    """
    own = part_name(run.spec.get("oracle"))
    oracle: dict[str, bool] = {}
    people: dict[str, bool] = {}
    for verdict in run.verdicts():
        if verdict.picture == "made" and verdict.keeps_label is not None:  # an abstention replaces no answer
            if by_people(verdict.oracle):
                people[verdict.trial_id] = verdict.keeps_label
            elif verdict.oracle == own:
                oracle[verdict.trial_id] = verdict.keeps_label
    needs_people = bool(people) or by_people(own)
    asks = bool(own) and (run.spec.get("mining") or {}).get("object_check", True)  # whether the oracle's answer was to count
    folders = folders_of(run.classes)
    found, left = [], Counter[str]()
    for trial in run.trials:
        if not trial.image or not trial.validated or trial.arm in CONTROLS:
            continue
        accepted = people.get(trial.trial_id) if needs_people else (oracle.get(trial.trial_id) if asks else True)
        if not accepted:
            left["rejected" if accepted is False else "undecided"] += 1
            continue
        name = f"{folders[trial.label]}/{_file_name(trial)}"
        answers = (_word(oracle.get(trial.trial_id)), _word(people.get(trial.trial_id)))
        found.append(ExportedImage(trial, run.picture(trial), name, run.classes[trial.label], *answers))
    if not found:
        why = ", ".join(f"{times} {name}" for name, times in sorted(left.items())) or "nothing was kept"
        who = "people" if needs_people else f"oracle {own or 'none'}"
        raise UsageError(f"{run.path}: {who} accepted no image to export ({why}); resume the run, or have it reviewed")
    return found


def describe(run: Run, images: Sequence[ExportedImage], *, name: str, licence: str | None, note: str = "") -> About:
    """Gather what the set's files say of it. Downloads are named without the folders they lie in on this machine."""
    ids: Mapping[str, Sequence[str]] = run.provenance.get("class_ids") or {}
    folders, used = folders_of(run.classes), {image.trial.label for image in images}
    named = [(known, folders[at]) for at, known in enumerate(run.classes) if at in used]
    arms = sorted({image.trial.arm for image in images})
    against = [part_name(run.spec.get("model"))] if "guided" in arms else []  # guided steps lead to this model's mistakes
    review = review_of(run.path)
    made = f"made by the {run.protocol} protocol to test classifiers"
    content = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "licence": licence or UNSTATED,
        "description": f"{len(images)} images of {len(named)} classes, {made}",
        "images": len(images),
        "classes": [{"name": known, "folder": folder, "ids": list(ids.get(known) or [known])} for known, folder in named],
        "surrogates": [short_name(each) for each in dict.fromkeys([*surrogates_of(run), *against]) if each],
        "provenance": {
            "protocol": run.protocol,
            "parts": {role: short_name(part_name(run.spec.get(role))) for role in ROLES if run.spec.get(role)},
            "seed": int(run.spec.get("seed", 0)),
            "program": f"counterfoil {program_version()}",
            "code": str(run.provenance.get("code", "")),
        },
        **({"review": dict(review)} if review else {}),
        **({"note": note} if note else {}),
    }
    return About(
        content,
        list(run.classes),
        arms,
        counts=dict(sorted(Counter(image.trial.factor or image.trial.arm for image in images).items())),
        by_class=Counter(image.class_name for image in images),
        accepted_by_people=sum(image.people == "yes" for image in images),
    )


def datasheet(about: About, *, files: Sequence[str], front: str = "") -> str:
    """Write the datasheet in Markdown. `files` says what lies where; `front` is metadata that has to open the file."""
    told = about.content
    made, surrogates, people = told["provenance"], told["surrogates"], about.accepted_by_people
    lines = [f"# {told['name']}", "", f"{told['description']}."]
    lines += ["", "## Contents", "", *(f"- {line}" for line in files), "", "| kind | images |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in about.counts.items()]
    fewest, most = min(about.by_class.values()), max(about.by_class.values())
    lines += ["", f"{len(about.by_class)} classes with {fewest} to {most} images each."]
    lines += ["", "## How it was made", "", *(_HOW[arm] for arm in about.arms if arm in _HOW)]
    lines += ["", *(f"- {role}: `{name}`" for role, name in made["parts"].items())]
    lines += [f"- surrogates: {', '.join(f'`{name}`' for name in surrogates)}"] if surrogates else []
    lines += [f"- seed {made['seed']}, {made['program']}, code {made['code'][:12] or UNSTATED}"]
    lines += ["", "## Checked by", ""]
    lines += [f"- people: {people} of {about.size} images" if people else "- no person has looked at these images"]
    lines += [f"- {line}" for line in review_lines(told["review"])] if "review" in told else []
    lines += [f"- oracle `{made['parts']['oracle']}`"] if "oracle" in made["parts"] else []
    lines += ["", "## Intended use", ""]
    lines += ["- Comparing classifiers on images unlike those they were trained on. Not for training the models under test."]
    if surrogates:
        lines += [
            "- The set was made against its surrogates, or chosen by their mistakes. Their accuracy on it says how it was made,",
            "  not how good they are. Other models are tested fairly, those related to a surrogate less so.",
        ]
    lines += ["- The images are generated. They carry the biases of the parts that made them."]
    lines += ["", "## Licence", "", told["licence"]]
    if told["licence"] == UNSTATED:
        lines += ["", "No licence was stated. The terms of the parts named above may bind what is made with them."]
    lines += ["", told["note"]] if "note" in told else []
    return front + "\n".join(lines) + "\n"


@dataclass(frozen=True)
class SetFile:
    """A set as its files describe it."""

    class_ids: Mapping[str, tuple[str, ...]]  # by class name and by folder name
    pictures: Mapping[str, Mapping[str, str]]  # rows of the table by the image's id, as the dataset's reader has it
    surrogates: tuple[str, ...] = ()  # models that the set was made against, or whose mistakes chose it


def find_set(folder: Path) -> SetFile | None:
    """Read the set in a folder; None where no set file lies there."""
    path = folder / SET_FILE
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        if content["format"] != FORMAT or content["version"] > VERSION:
            raise BadData(
                f"{path}: {content['format']} version {content['version']}, this program reads {FORMAT} up to {VERSION}"
            )
        ids: dict[str, tuple[str, ...]] = {}
        for entry in content["classes"]:
            ids[str(entry["name"])] = ids[str(entry["folder"])] = tuple(str(each) for each in entry["ids"])
        surrogates = tuple(str(name) for name in content.get("surrogates", ()))
        return SetFile(ids, _read_table(folder / TABLE), surrogates)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise BadData(f"{path}: damaged ({one_line(error)}); export the set again") from None


def _read_table(path: Path) -> dict[str, Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = ({key: unescape_formula(value) for key, value in row.items()} for row in csv.DictReader(stream))
        return {_image_id(row["file_name"], at): row for at, row in enumerate(rows)}


def _image_id(file_name: str, row: int) -> str:
    """The id that the reader of the set's format gives an image: its path, its sample in a shard, or its row."""
    if shard := _SHARD.fullmatch(file_name):
        return f"{shard[1]}/{shard[2]}"
    return f"{row:08d}" if _PARQUET.match(file_name) else file_name


def folders_of(classes: Sequence[str]) -> list[str]:
    """Name a folder for each class, all different, in letters that every file system and spreadsheet takes."""
    plain = [re.sub(r"[^\w .()'+-]+", "_", name).strip(" .").lstrip("'+-") or "class" for name in classes]
    times = Counter(name.casefold() for name in plain)
    return [f"{name} {at}" if times[name.casefold()] > 1 else name for at, name in enumerate(plain)]


def _write_folders(folder: Path, about: About, images: Sequence[ExportedImage], watch: Watch) -> Written:
    """One folder per class: what `counterfoil run --data`, Hugging Face's image folders and FiftyOne's trees read."""
    for image in images:
        target = folder / image.file_name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(image.read())
        watch(1)
    files = "one folder per class with its images, as `counterfoil run --data` and most loaders read it"
    return Written(files, hashes={image.file_name: image.sha256 for image in images})


def _write_webdataset(folder: Path, about: About, images: Sequence[ExportedImage], watch: Watch) -> Written:
    """Plain tar files: for each sample the image, its label number, and its row of the table."""
    names: dict[str, str] = {}
    for start in range(0, len(images), SHARD):
        shard = f"images-{start // SHARD:06d}.tar"
        with tarfile.open(folder / shard, "w", format=tarfile.USTAR_FORMAT) as tar:
            for at, image in enumerate(images[start : start + SHARD], start=start):
                key = f"{at:08d}"
                _add(tar, f"{key}.png", image.read())
                _add(tar, f"{key}.cls", str(image.trial.label).encode())
                _add(tar, f"{key}.json", json.dumps(image.row(), ensure_ascii=False, sort_keys=True).encode())
                names[image.file_name] = f"{shard}/{key}.png"
                watch(1)
    last = max(0, (len(images) - 1) // SHARD)
    return Written(f"`images-{{000000..{last:06d}}}.tar`: .png, .cls and .json for each image", names)


def _write_datasets(folder: Path, about: About, images: Sequence[ExportedImage], watch: Watch) -> Written:
    """Parquet in the layout of the Hugging Face hub: `datasets.load_dataset(FOLDER)`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name in COLUMNS if name not in ("file_name", "label", "seed")]
    features: dict[str, Any] = {"image": {"_type": "Image"}, "label": {"names": list(about.labels), "_type": "ClassLabel"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in texts}
    features["seed"] = {"dtype": "int64", "_type": "Value"}
    types = [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())]
    schema = pa.schema([*types, *((name, pa.string()) for name in texts), ("seed", pa.int64())])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    groups = [images[start : start + SHARD] for start in range(0, len(images), SHARD)]
    names: dict[str, str] = {}
    (folder / "data").mkdir()
    for at, group in enumerate(groups):
        name = f"data/test-{at:05d}-of-{len(groups):05d}.parquet"
        values = []
        for image in group:
            row = image.row()
            cells = {key: "" if row[key] is None else str(row[key]) for key in texts}
            content = {"bytes": image.read(), "path": image.file_name}
            values.append({"image": content, "label": image.trial.label, **cells, "seed": image.trial.seed})
            names[image.file_name] = f"{name}#{image.file_name}"
            watch(1)
        pq.write_table(pa.Table.from_pylist(values, schema=schema), folder / name, compression="zstd")
    front = ["---", f"pretty_name: {json.dumps(about.content['name'])}", "task_categories: [image-classification]"]
    licence = about.content["licence"]
    front += [f"license: {json.dumps(licence)}" if licence.islower() else "license: other"]
    front += ["configs:", "- config_name: default", "  data_files: [{split: test, path: data/test-*}]", "---", "", ""]
    return Written("`data/`: Parquet files with the images inside; split `test`", names, front="\n".join(front))


LAYOUTS: Mapping[str, Callable[[Path, About, Sequence[ExportedImage], Watch], Written]] = {
    "folder": _write_folders,
    "webdataset": _write_webdataset,
    "datasets": _write_datasets,
}
"""By the name that `--format` takes."""


def _write_table(path: Path, images: Sequence[ExportedImage], names: Mapping[str, str]) -> None:
    """Write the set's table. Texts that a spreadsheet would take for a formula are escaped; `find_set` undoes that."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, list(COLUMNS), lineterminator="\n")
        table.writeheader()
        for image in images:
            row = {**image.row(), "file_name": names.get(image.file_name, image.file_name)}
            table.writerow({key: escape_formula(value) if isinstance(value, str) else value for key, value in row.items()})


def _write_croissant(folder: Path, about: About) -> None:
    """Write Croissant metadata (ML Commons) for a set in folders."""
    ml = require("mlcroissant", what="--croissant")
    told = about.content
    origin = told["provenance"]
    parts = ", ".join(f"{role} {name}" for role, name in origin["parts"].items())
    made = f"Made by {origin['program']} ({parts}), seed {origin['seed']}"
    table = hashlib.sha256((folder / TABLE).read_bytes()).hexdigest()
    fields = [
        ml.Field(
            id=f"rows/{name}",
            name=name,
            description=meaning,
            data_types=[ml.DataType.INTEGER if name in ("label", "seed") else ml.DataType.TEXT],
            source=ml.Source(file_object="table", extract=ml.Extract(column=name)),
        )
        for name, meaning in COLUMNS.items()
    ]
    metadata = ml.Metadata(
        name=re.sub(r"[^\w .-]", "-", told["name"]) or "set",
        description=f"{told['description']}. {made}.",
        license=[told["licence"]],
        version="1.0.0",
        data_collection="; ".join([made, *(f"surrogate {name}" for name in told["surrogates"])]),
        distribution=[
            ml.FileObject(id="table", name="table", content_url=TABLE, encoding_formats=["text/csv"], sha256=table),
            ml.FileSet(id="images", name="images", encoding_formats=["image/png"], includes=["*/*.png"]),
        ],
        record_sets=[ml.RecordSet(id="rows", name="rows", key=["rows/file_name"], fields=fields)],
    )
    (folder / CROISSANT).write_text(json.dumps(metadata.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_sums(folder: Path, known: Mapping[str, str]) -> None:
    """Write the checksums of all files, as `sha256sum --check` reads them."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    lines = [f"{known.get(name) or hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Give a folder that takes the place of `out` once everything is written."""
    partial = out.with_name(out.name + PARTIAL)
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out}: is there already; choose another --out, or remove it first")
        shutil.rmtree(partial, ignore_errors=True)  # of an export that was killed
        partial.mkdir(parents=True)
        yield partial
        if out.is_dir():
            out.rmdir()
        os.replace(partial, out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _file_name(trial: Trial) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{trial.factor or trial.arm} {trial.value}").strip("-").lower()[:60]
    return f"{words}-{hashlib.sha256(trial.trial_id.encode()).hexdigest()[:10]}.png"


def _word(answer: bool | None) -> str:
    return "" if answer is None else "yes" if answer else "no"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644  # no owner and no time: the same set has the same bytes
    tar.addfile(member, io.BytesIO(content))
