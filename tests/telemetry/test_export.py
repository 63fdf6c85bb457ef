"""Files of recorded requests: every format holds what the rows hold."""

import csv
import io
import json
import re
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


# What clients choose goes into these.
FREE_TEXTS = ("requested_model", "error", "route_reason", "category", "finish_reason", "client")
FORMULAS = [
    *("=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0d1", "-", "="),
    *("a;=1", "a\t+1", 'a\r\n"=1"\n=1', ";;=1", "=1;=1", 'b",=1;-1', 'a;"=1"', '"-1"'),
]
HARMLESS = ["gemma", "a-b", "a=b", "a, -b", "no model 'x'; known are 'y'", "", "ä+", "1e5", "a;b"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_csv_is_a_formula_whatever_separates_them_for_a_spreadsheet(text: str, separator: str) -> None:
    record = replace(RECORDS[1], **dict.fromkeys(FREE_TEXTS, text))
    lines = written(ExportFormat.CSV, [record]).decode()
    cells = [cell for row in csv.reader(io.StringIO(lines, newline=""), delimiter=separator) for cell in row]
    assert len(cells) > 1
    assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20"))]


@pytest.mark.parametrize("text", [*FORMULAS, *HARMLESS, "'", "''", "'=1", "it's", "';'=1", "a;'b"])
def test_the_text_of_a_cell_can_be_had_back(text: str) -> None:
    record = replace(RECORDS[1], **dict.fromkeys(FREE_TEXTS, text))
    [row] = csv.DictReader(io.StringIO(written(ExportFormat.CSV, [record]).decode(), newline=""))
    assert {re.sub(r"(\A|[;\t\r\n])'", r"\1", row[name]) for name in FREE_TEXTS} == {text}
    if text in HARMLESS:
        assert row["error"] == text
    [document] = [json.loads(line) for line in written(ExportFormat.JSONL, [record]).splitlines()]
    [columns] = pyarrow.parquet.read_table(io.BytesIO(written(ExportFormat.PARQUET, [record]))).to_pylist()
    assert {found[name] for found in (document, columns) for name in FREE_TEXTS} == {text}


def test_numbers_of_csv_stay_numbers() -> None:
    record = replace(RECORDS[0], duration_seconds=-0.5, queue_seconds=-1e-9, status_code=-1)
    [row] = csv.DictReader(io.StringIO(written(ExportFormat.CSV, [record]).decode(), newline=""))
    assert (row["duration_seconds"], row["queue_seconds"], row["status_code"]) == ("-0.5", "-1e-09", "-1")
    assert row["started_at"] == as_text(record.started_at)


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
    assert "its extra `parquet`" in ran.stdout
    assert "EXTRAS=parquet" in ran.stdout
