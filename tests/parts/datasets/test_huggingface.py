from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.core.errors import BadData, BadImage
from counterfoil.testing import check_dataset
from tests.parts.created import hf_dataset
from tests.parts.datasets.made import number_of, png, shade

NAMES = ["cat", "dog", "elk"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for every test, and no network."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def table(labels: list[Any], feature: Any = None, **more: Any) -> datasets.Dataset:
    features = {"image": datasets.Image(), "label": feature or datasets.ClassLabel(names=NAMES)}
    columns = {"image": [{"bytes": png(number), "path": None} for number in range(len(labels))], "label": labels}
    return datasets.Dataset.from_dict({**columns, **more}, features=datasets.Features(features) if not more else None)


def parquet(folder: Path, labels: list[int], split: str = "test") -> Path:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    table(labels).to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def test_a_folder_in_the_hubs_layout(tmp_path: Path) -> None:
    data = hf_dataset(str(parquet(tmp_path / "set", [2, 0, 1, 2])))
    assert list(data.classes) == NAMES
    assert [(sample.image_id, sample.label) for sample in data] == [
        ("00000000", 2),
        ("00000001", 0),
        ("00000002", 1),
        ("00000003", 2),
    ]
    assert [number_of(data.load(sample, 8)) for sample in data] == [0, 1, 2, 3]
    check_dataset(data)


def test_what_save_to_disk_wrote(tmp_path: Path) -> None:
    table([1, 0]).save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": table([0, 1, 2]), "test": table([1, 0])}).save_to_disk(tmp_path / "both")
    assert len(hf_dataset(str(tmp_path / "one"))) == 2
    assert len(hf_dataset(str(tmp_path / "both"), split="train")) == 3
    check_dataset(hf_dataset(str(tmp_path / "both"), split="test"))
    with pytest.raises(BadData, match="several splits; give split, one of train, test"):
        hf_dataset(str(tmp_path / "both"))
    with pytest.raises(BadData, match="no split 'valid'"):
        hf_dataset(str(tmp_path / "both"), split="valid")


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    for number, name in enumerate(("dog", "cat")):
        (tmp_path / "set" / "train" / name).mkdir(parents=True)
        shade(number).save(tmp_path / "set" / "train" / name / "x.png")
    data = hf_dataset(str(tmp_path / "set"))
    assert sorted((data.classes[sample.label], number_of(data.load(sample, 8))) for sample in data) == [("cat", 1), ("dog", 0)]


@pytest.mark.parametrize("layout", ["parquet", "disk"])
def test_streaming_takes_the_first_images(tmp_path: Path, layout: str) -> None:
    if layout == "parquet":
        folder = parquet(tmp_path / "set", [2, 0, 1, 2, 0])
    else:
        folder = tmp_path / "set"
        table([2, 0, 1, 2, 0]).save_to_disk(folder)
    data = hf_dataset(str(folder), streaming=True, count=3, split="test" if layout == "parquet" else None)
    assert [sample.label for sample in data] == [2, 0, 1]
    assert [number_of(data.load(sample, 8)) for sample in reversed(list(data))] == [2, 1, 0]
    check_dataset(data)
    assert [sample.label for sample in hf_dataset(str(folder), count=3)] == [2, 0, 1]  # the same without streaming


def test_a_stream_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, fetched = table([2, 0, 1, 2, 0]), []

    def generate() -> Iterator[dict[str, Any]]:
        for row in rows.cast_column("image", datasets.Image(decode=False)):
            fetched.append(row["label"])
            yield row

    stream = datasets.IterableDataset.from_generator(generate, features=rows.features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments, **options: stream)
    first = hf_dataset("someone/photos", split="test", streaming=True, count=3)
    read = len(fetched)
    assert 3 <= read < 5  # the library reads one row ahead
    again = hf_dataset("someone/photos", split="test", streaming=True, count=3)
    assert len(fetched) == read  # from the cache
    reader = pickle.loads(pickle.dumps(first.reader()))  # what a worker gets
    assert [number_of(reader.load(sample, 8)) for sample in again] == [0, 1, 2]
    assert len(fetched) == read and first.provenance() == again.provenance()


def test_files_outside_the_data_set_are_not_read(tmp_path: Path) -> None:
    shade(7).save(tmp_path / "private.png")
    (tmp_path / "set").mkdir()
    shade(1).save(tmp_path / "set" / "own.png")
    cells = [str(tmp_path / "private.png"), str(tmp_path / "set" / ".." / "private.png"), str(tmp_path / "set" / "own.png")]
    columns = {"image": [{"bytes": None, "path": cell} for cell in cells], "label": ["cat", "dog", "cat"]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    stored = pa.Table.from_pydict(columns, schema=features.arrow_schema)
    pq.write_table(stored, tmp_path / "set" / "x.parquet")
    data = hf_dataset(str(tmp_path / "set"))
    first, second, third = data
    for sample in (first, second):
        with pytest.raises(BadImage, match="which is no part of the data set"):
            data.load(sample, 8)
    assert number_of(data.load(third, 8)) == 1
    streamed = hf_dataset(str(tmp_path / "set"), streaming=True, count=2, split="train")
    with pytest.raises(BadImage, match="which is no part of the data set"):
        streamed.load(next(iter(streamed)), 8)


def test_labels_in_words_or_numbers(tmp_path: Path) -> None:
    table(["dog", "cat"], datasets.Value("string")).save_to_disk(tmp_path / "words")
    table([1, 0], datasets.Value("int64")).save_to_disk(tmp_path / "numbers")
    assert list(hf_dataset(str(tmp_path / "words")).classes) == ["cat", "dog"]
    assert list(hf_dataset(str(tmp_path / "numbers"), classes=["cat", "dog"]).classes) == ["cat", "dog"]


def test_columns_are_named_where_they_are_not_plain(tmp_path: Path) -> None:
    made = table([1, 0]).rename_column("image", "photo")
    made.add_column("coarse", [0, 1]).cast_column("coarse", datasets.ClassLabel(names=["a", "b"])).save_to_disk(tmp_path / "x")
    with pytest.raises(BadData, match="2 columns may be the label; give label: one of photo, label, coarse"):
        hf_dataset(str(tmp_path / "x"))
    assert list(hf_dataset(str(tmp_path / "x"), label="coarse").classes) == ["a", "b"]
    with pytest.raises(BadData, match="no column 'photograph' for image"):
        hf_dataset(str(tmp_path / "x"), image="photograph", label="coarse")


def test_rows_without_a_label_or_picture_are_named(tmp_path: Path) -> None:
    table([1, -1]).save_to_disk(tmp_path / "unlabelled")
    with pytest.raises(BadData, match="row 1 has the label -1"):
        hf_dataset(str(tmp_path / "unlabelled"))
    broken = {"image": [{"bytes": b"junk", "path": None}, {"bytes": png(1), "path": None}], "label": [0, 1]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    datasets.Dataset.from_dict(broken, features=features).save_to_disk(tmp_path / "broken")
    data = hf_dataset(str(tmp_path / "broken"))
    with pytest.raises(BadImage, match=r"broken\[00000000\]: not an image"):
        data.load(next(iter(data)), 8)


def test_what_is_not_at_hand_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"org/nothing: not in the cache .*hf download --repo-type dataset org/nothing") as caught:
        hf_dataset("org/nothing", split="test")
    assert "\n" not in str(caught.value)


def test_provenance_tells_other_data(tmp_path: Path) -> None:
    table([1, 0]).save_to_disk(tmp_path / "a")
    table([0, 1]).save_to_disk(tmp_path / "b")
    first, second = (hf_dataset(str(tmp_path / name)).provenance() for name in "ab")
    assert first["library"] == f"datasets {datasets.__version__}"
    assert first["fingerprint"] != second["fingerprint"]
