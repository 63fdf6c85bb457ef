"""Recorded requests as files: CSV, JSON lines or Parquet, piece by piece."""

import csv
import importlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, Protocol, get_type_hints

import msgspec

from app.errors import PacelineError
from app.telemetry.records import RequestRecord

COLUMNS = tuple(RequestRecord.__dataclass_fields__)
_values = attrgetter(*COLUMNS)

# What a spreadsheet takes for a formula, with the wide forms of the signs: at the beginning of a cell, and after what
# separates cells where another separator than the comma is set, since quotes in the midst of a line mean nothing there.
# An apostrophe that is in such a place already gets one as well, so that the text can be had back.
_FORMULA = re.compile(r"(?:\A|(?<=[;\t\r\n]))(?=\"*['=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")

# Rows of a group of a Parquet file: enough to be packed well, and few megabytes in memory.
_GROUP_ROWS = 20_000


class ParquetMissing(PacelineError):
    """Parquet was asked for, and the package that writes it is not installed."""

    code = "parquet-missing"


class ExportFormat(StrEnum):
    """What an export can be."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8; header=present",
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


class Export(Protocol):
    """One file in the making. Any of the pieces may be empty."""

    def add(self, records: Sequence[RequestRecord]) -> bytes:
        """The bytes that follow with these records."""

    def end(self) -> bytes:
        """The last bytes."""


def export_as(form: ExportFormat) -> Export:
    """A new file. Raises ParquetMissing."""
    kinds: Mapping[ExportFormat, Callable[[], Export]] = {
        ExportFormat.CSV: _Csv,
        ExportFormat.JSONL: _JsonLines,
        ExportFormat.PARQUET: _Parquet,
    }
    return kinds[form]()


class _Csv:
    """RFC 4180, with the names in the first line. What is absent is empty; times are RFC 3339.

    Text that a spreadsheet could take for a formula has an apostrophe in front: clients choose some of it.
    """

    def __init__(self) -> None:
        self._has_begun = False

    def add(self, records: Sequence[RequestRecord]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text)
        if not self._has_begun:
            writer.writerow(COLUMNS)
            self._has_begun = True
        writer.writerows(map(_csv_values, records))
        return text.getvalue().encode()

    def end(self) -> bytes:
        return self.add(()) if not self._has_begun else b""


def _csv_values(record: RequestRecord) -> list[Any]:
    return [_csv_value(value) for value in _values(record)]


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return _FORMULA.sub("'", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


class _JsonLines:
    """One JSON object a line, as GET /requests has them."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode_lines

    def add(self, records: Sequence[RequestRecord]) -> bytes:
        return self._encode(records)

    def end(self) -> bytes:
        return b""


class _Parquet:
    """Columns of the types of RequestRecord; times are in milliseconds, in UTC."""

    def __init__(self) -> None:
        try:
            self._arrow: Any = importlib.import_module("pyarrow")
            parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError as failure:
            raise ParquetMissing(
                "Parquet needs the package pyarrow, which this installation of Paceline lacks: install Paceline with "
                "its extra `parquet`, or build its image with EXTRAS=parquet; or ask for csv or jsonl"
            ) from failure
        self._sink = io.BytesIO()
        self._schema = self._arrow.schema([(name, self._type(hint)) for name, hint in _hints().items()])
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="zstd")
        # Made of each page at once: to make columns of a whole group would hold the interpreter for long.
        self._batches: list[Any] = []
        self._rows = 0

    def add(self, records: Sequence[RequestRecord]) -> bytes:
        if records:
            columns = zip(zip(*map(_values, records), strict=True), self._schema, strict=True)
            arrays = [self._arrow.array(column, field.type) for column, field in columns]
            self._batches.append(self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema))
            self._rows += len(records)
        if self._rows >= _GROUP_ROWS:
            self._write()
        return self._written()

    def end(self) -> bytes:
        if self._batches:
            self._write()
        self._writer.close()
        return self._written()

    def _write(self) -> None:
        self._writer.write_table(self._arrow.Table.from_batches(self._batches))
        self._batches.clear()
        self._rows = 0

    def _written(self) -> bytes:
        """What is in the sink, which starts afresh: the writer only counts what it wrote."""
        written = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return written

    def _type(self, hint: Any) -> Any:
        kinds = {
            str: self._arrow.string(),
            int: self._arrow.int64(),
            float: self._arrow.float64(),
            bool: self._arrow.bool_(),
            datetime: self._arrow.timestamp("ms", tz="UTC"),
        }
        return next(kind for known, kind in kinds.items() if hint == known or hint == known | None)


def _hints() -> dict[str, Any]:
    return get_type_hints(RequestRecord)
