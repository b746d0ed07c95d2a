"""Tables of a run directory: records to Parquet files and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.core.errors import BadRun
from counterfoil.core.records import Prediction, Trial, Verdict

RECORDS: dict[str, type[Any]] = {"trials": Trial, "predictions": Prediction, "verdicts": Verdict}

Record = TypeVar("Record", Trial, Prediction, Verdict)

_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _arrow_type(hint: Any) -> pa.DataType:
    """Column type of a record's field. Floats keep all their digits, so that what is read is what was written."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is Literal:
        return pa.string()
    if get_origin(hint) is tuple:  # tuple[float, ...]
        return pa.list_(_arrow_type(get_args(hint)[0]))
    inner = [each for each in get_args(hint) if each is not type(None)]
    if len(inner) == 1:  # bool | None: null while the oracle abstains
        return _arrow_type(inner[0])
    raise TypeError(f"no column type for {hint}")


def _schema(record: type[Any]) -> pa.Schema:
    hints = get_type_hints(record)
    return pa.schema([(field.name, _arrow_type(hints[field.name])) for field in dataclasses.fields(record)])


SCHEMAS: dict[str, pa.Schema] = {table: _schema(record) for table, record in RECORDS.items()}


def to_parquet(table: str, records: Sequence[Any]) -> bytes:
    """Records as the bytes of a Parquet file."""
    schema = SCHEMAS[table]
    columns = {name: [getattr(record, name) for record in records] for name in schema.names}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=schema), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def scan(path: Path, table: str, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Rows of a Parquet file, batch by batch; BadRun if it is missing, cut short or altered."""
    try:
        with pq.ParquetFile(path) as file:
            if not file.schema_arrow.equals(SCHEMAS[table]):
                raise pa.ArrowInvalid("other columns")
            yield from file.iter_batches(batch_size=8192, columns=list(columns) if columns else None, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise BadRun(f"{path}: damaged or missing; repeat the command that wrote it and its work is done again") from error


def read_rows(path: Path, table: str) -> Iterator[Any]:
    """Records of a Parquet file."""
    for batch in scan(path, table):
        yield from to_records(RECORDS[table], batch)


def to_records(record: type[Record], batch: pa.RecordBatch) -> Iterator[Record]:
    """Records of a batch that has all columns."""
    columns: list[list[Any]] = []
    for column in batch.columns:
        values = column.to_pylist()
        columns.append([tuple(value) for value in values] if pa.types.is_list(column.type) else values)
    for row in zip(*columns, strict=True):
        yield record(*row)
