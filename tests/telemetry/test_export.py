"""Files of recorded requests: every format holds what the rows hold."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet
import pytest
from fakes.finished_requests import PLAIN_CONTEXT, UNDRAFTED, finished, rejected

from app.telemetry.export import COLUMNS, ExportFormat, export_as
from app.telemetry.records import RequestRecord, record_of_event

RECORDS = [
    record_of_event(finished(3, category="code", client='a, "quoted"\nname')),
    record_of_event(finished(2, context=PLAIN_CONTEXT, report=UNDRAFTED, time_to_first_token_us=None)),
    record_of_event(finished(1, stream=False, requested_model="é\ud7ff €")),
    record_of_event(rejected(0, status_code=None, error=None)),
]


def written(form: ExportFormat, records: list[RequestRecord], by: int = 3) -> bytes:
    export = export_as(form)
    pieces = [export.add(records[start : start + by]) for start in range(0, len(records), by)]
    return b"".join([*pieces, export.end()])


def test_csv_has_a_header_and_a_line_of_each() -> None:
    rows = list(csv.DictReader(io.StringIO(written(ExportFormat.CSV, RECORDS).decode(), newline="")))
    assert list(rows[0]) == list(COLUMNS)
    for row, record in zip(rows, RECORDS, strict=True):
        for name, value in asdict(record).items():
            assert row[name] == as_text(value), name


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}Z"
    return str(value)


def test_csv_of_nothing_has_its_header_once() -> None:
    assert written(ExportFormat.CSV, []) == ",".join(COLUMNS).encode() + b"\r\n"
    assert written(ExportFormat.CSV, RECORDS, by=1).count(b"started_at") == 1


def test_json_lines_are_the_objects_of_the_list() -> None:
    lines = written(ExportFormat.JSONL, RECORDS).splitlines()
    for line, record in zip(lines, RECORDS, strict=True):
        expected = {**asdict(record), "started_at": as_text(record.started_at)}
        assert json.loads(line) == expected
    assert written(ExportFormat.JSONL, []) == b""


@pytest.mark.parametrize("count", [0, 4, 45_000])
def test_parquet_has_types_and_comes_in_pieces(count: int) -> None:
    records = [replace(RECORDS[number % 4], duration_seconds=number / 8) for number in range(count)]
    export = export_as(ExportFormat.PARQUET)
    pieces = [export.add(records[start : start + 500]) for start in range(0, count, 500)]
    assert sum(len(piece) > 4 for piece in pieces) == count // 20_000
    table = pyarrow.parquet.read_table(io.BytesIO(b"".join([*pieces, export.end()])))
    named = ("id", "started_at", "stream", "revision", "queue_seconds")
    assert [str(table.schema.field(name).type) for name in named] == [
        "string", "timestamp[ms, tz=UTC]", "bool", "int64", "double",
    ]  # fmt: skip
    found = table.slice(max(count - 4, 0)).to_pylist()
    assert table.num_rows == count
    assert found == [asdict(record) for record in records[-4:]]
    assert all(row["started_at"].astimezone(UTC) == row["started_at"] for row in found)


MISSING = """
import sys
sys.modules["pyarrow"] = None
from app.telemetry.export import ExportFormat, ParquetMissing, export_as
export_as(ExportFormat.CSV)
try:
    export_as(ExportFormat.PARQUET)
except ParquetMissing as missing:
    print(missing.message)
"""


def test_parquet_without_its_package_says_what_to_install() -> None:
    environment = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", MISSING], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install -e '.[parquet]'" in ran.stdout
