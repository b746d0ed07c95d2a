"""The layouts a set can be written in."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.report.export.about import About
from counterfoil.report.export.croissant import write_croissant
from counterfoil.report.export.pictures import Picture
from counterfoil.store.pictures import PictureFile

Watch = Callable[[int], None]
SHARD = 1000  # pictures in one tar file or Parquet file


@dataclass(frozen=True)
class Written:
    """What a layout came to."""

    layout: Sequence[str]  # lines for the datasheet
    names: dict[str, str] | None = None  # other file names than the usual ones, by those
    front: str = ""  # what has to open the datasheet
    last: Sequence[Callable[[], None]] = field(default_factory=tuple)


def folder_layout(folder: Path, about: About, pictures: Sequence[Picture], watch: Watch) -> Written:
    """One folder a class."""
    for picture in pictures:
        _copy(picture.path, folder / picture.file_name)
        watch(1)
    lines = ["one folder a class with its pictures, as `counterfoil run --data` and most loaders read it"]
    return Written([*lines, "`croissant.json`: the same for programs"], last=[lambda: write_croissant(folder, about)])


def csv_layout(folder: Path, about: About, pictures: Sequence[Picture], watch: Watch) -> Written:
    """All pictures in one folder, and the table."""
    names = {picture.file_name: f"images/{picture.file_name.replace('/', '--')}" for picture in pictures}
    for picture in pictures:
        _copy(picture.path, folder / names[picture.file_name])
        watch(1)
    return Written(["`images/`: the pictures"], names)


def webdataset_layout(folder: Path, about: About, pictures: Sequence[Picture], watch: Watch) -> Written:
    """Plain tar files, each sample a picture, its label's number and what is said of it."""
    names: dict[str, str] = {}
    for start in range(0, len(pictures), SHARD):
        shard = f"pictures-{start // SHARD:06d}.tar"
        with tarfile.open(folder / shard, "w", format=tarfile.USTAR_FORMAT) as tar:
            for at, picture in enumerate(pictures[start : start + SHARD], start=start):
                key = f"{at:08d}"
                row = picture.row()
                _add(tar, f"{key}.png", picture.path.read_bytes())
                _add(tar, f"{key}.cls", str(picture.trial.label).encode())
                _add(tar, f"{key}.json", json.dumps(row, ensure_ascii=False, sort_keys=True).encode())
                names[picture.file_name] = f"{shard}/{key}.png"
                watch(1)
    last = max(0, (len(pictures) - 1) // SHARD)
    shards = f"`pictures-{{000000..{last:06d}}}.tar`: .png, .cls and .json a picture"
    return Written([shards], names)


def datasets_layout(folder: Path, about: About, pictures: Sequence[Picture], watch: Watch) -> Written:
    """Parquet in the layout of the Hugging Face hub: `datasets.load_dataset(FOLDER)`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    classes = list(about.labels)
    features: dict[str, Any] = {"image": {"_type": "Image"}, "label": {"names": classes, "_type": "ClassLabel"}}
    texts = ("class", "kind", "nuisance", "prompt", "caption", "trial", "source", "sha256", "oracle", "people")
    features |= {name: {"dtype": "string", "_type": "Value"} for name in texts}
    features["seed"] = {"dtype": "int64", "_type": "Value"}
    types = [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())]
    schema = pa.schema([*types, *((name, pa.string()) for name in texts), ("seed", pa.int64())])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    files = [pictures[start : start + SHARD] for start in range(0, len(pictures), SHARD)]
    names: dict[str, str] = {}
    (folder / "data").mkdir()
    for at, some in enumerate(files):
        name = f"data/test-{at:05d}-of-{len(files):05d}.parquet"
        values = []
        for picture in some:
            row = picture.row()
            cells = {key: "" if row[key] is None else str(row[key]) for key in texts}
            image = {"bytes": picture.path.read_bytes(), "path": picture.file_name}
            values.append({"image": image, "label": picture.trial.label, **cells, "seed": picture.trial.seed})
            names[picture.file_name] = f"{name}#{picture.file_name}"
            watch(1)
        pq.write_table(pa.Table.from_pylist(values, schema=schema), folder / name, compression="zstd")
    front = ["---", f"pretty_name: {json.dumps(about.name)}", "task_categories: [image-classification]"]
    front += [f"license: {json.dumps(about.licence)}" if about.licence.islower() else "license: other"]
    front += ["configs:", "- config_name: default", "  data_files: [{split: test, path: data/test-*}]", "---", "", ""]
    return Written(["`data/`: Parquet files with the pictures inside; split `test`"], names, front="\n".join(front))


def fiftyone_layout(folder: Path, about: About, pictures: Sequence[Picture], watch: Watch) -> Written:
    """FiftyOne's layout for image classification: `data/` and `labels.json`."""
    classes = list(about.labels)
    keys = {picture.file_name: Path(picture.file_name).stem for picture in pictures}
    for picture in pictures:
        _copy(picture.path, folder / "data" / f"{keys[picture.file_name]}.png")
        watch(1)
    labels = {keys[picture.file_name]: picture.trial.label for picture in pictures}
    (folder / "labels.json").write_text(json.dumps({"classes": classes, "labels": labels}, indent=1), encoding="utf-8")
    names = {name: f"data/{key}.png" for name, key in keys.items()}
    return Written(["`data/` and `labels.json`, as FiftyOne reads image classification"], names)


def label_studio_layout(folder: Path, about: About, pictures: Sequence[Picture], watch: Watch) -> Written:
    """Label Studio tasks that ask people the review's three questions of every picture."""
    tasks = []
    for picture in pictures:
        _copy(picture.path, folder / "images" / picture.file_name)
        row = picture.row()
        data = {"image": f"/data/local-files/?d=images/{picture.file_name}", "class": picture.class_name, "trial": row["trial"]}
        tasks.append({"data": data, "meta": {"sha256": row["sha256"], "kind": row["kind"], "nuisance": row["nuisance"]}})
        watch(1)
    (folder / "tasks.json").write_text(json.dumps(tasks, indent=1, ensure_ascii=False), encoding="utf-8")
    (folder / "labelling.xml").write_text(_LABELLING, encoding="utf-8")
    names = {picture.file_name: f"images/{picture.file_name}" for picture in pictures}
    return Written(["`tasks.json` and `labelling.xml` for Label Studio, with `images/` as its local storage"], names)


FORMATS: Mapping[str, Callable[[Path, About, Sequence[Picture], Watch], Written]] = {
    "folder": folder_layout,
    "csv": csv_layout,
    "webdataset": webdataset_layout,
    "datasets": datasets_layout,
    "fiftyone": fiftyone_layout,
    "label-studio": label_studio_layout,
}
"""By the name that `--format` takes. Croissant metadata comes with `folder`."""

_LABELLING = """<View>
  <Header value="Does this picture show: $class?"/>
  <Image name="image" value="$image"/>
  <Choices name="there" toName="image" required="true"><Choice value="yes"/><Choice value="no"/></Choices>
  <Header value="Is it the one class in it?"/>
  <Choices name="one" toName="image"><Choice value="yes"/><Choice value="no"/></Choices>
  <Header value="Is the picture good enough to use?"/>
  <Choices name="usable" toName="image"><Choice value="yes"/><Choice value="no"/></Choices>
</View>
"""


def _copy(source: PictureFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644  # no owner and no time: the same set has the same bytes
    tar.addfile(member, io.BytesIO(content))
