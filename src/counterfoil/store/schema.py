"""The tables of a run directory, derived from the records, and how records go in and out of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.core.records import Prediction, Trial, Verdict

VERSION = 2
"""Raised when an older program could no longer read the directory."""

RECORDS: dict[str, type[Any]] = {"trials": Trial, "predictions": Prediction, "verdicts": Verdict}

Record = TypeVar("Record", Trial, Prediction, Verdict)

_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _arrow_type(hint: Any) -> pa.DataType:
    """The column type for a record's field. Floats keep all their digits, so that what is read is what was written."""
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
    """The records as the bytes of a Parquet file."""
    schema = SCHEMAS[table]
    columns = {name: [getattr(record, name) for record in records] for name in schema.names}
    return to_bytes(pa.table(columns, schema=schema))


def to_bytes(rows: pa.Table) -> bytes:
    """Rows as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def completed(table: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of the schema; one that an older program did not write has its default."""
    if batch.schema.names == schema.names:
        return batch
    defaults = {field.name: field.default for field in dataclasses.fields(RECORDS[table])}
    present = {*batch.schema.names}
    columns = [
        batch.column(field.name)
        if field.name in present or defaults[field.name] is dataclasses.MISSING
        else pa.array([defaults[field.name]] * batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_records(record: type[Record], batch: pa.RecordBatch) -> Iterator[Record]:
    """The records of a batch."""
    table = next(name for name, each in RECORDS.items() if each is record)
    columns: list[list[Any]] = []
    for column in completed(table, batch, SCHEMAS[table]).columns:
        values = column.to_pylist()
        columns.append([tuple(value) for value in values] if pa.types.is_list(column.type) else values)
    for row in zip(*columns, strict=True):
        yield record(*row)
