"""The spill file by itself: what is written comes back in order, whatever cut it short."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.acceptance_windows import window
from fakes.finished_requests import UNDRAFTED, finished, rejected

from app.llama_server.timings import EMPTY
from app.proxy.observer import RequestFinished
from app.telemetry.recorded import Recorded
from app.telemetry.spill import SpillFile
from app.telemetry.windows import RecordedWindow

EVENTS: list[Recorded] = [
    finished(0, client_request_id="mine", category="code", client="key"),
    finished(1, report=UNDRAFTED, time_to_first_token_us=None),
    rejected(2, status_code=None),
]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SpillFile]:
    file = SpillFile(tmp_path / "spill", bytes_reserved=4096)
    file.open()
    yield file
    file.close()


def all_of(file: SpillFile, most: int = 1000) -> list[Recorded]:
    found: list[Recorded] = []
    while file.rows:
        part = file.front(most)
        found += part.values
        file.done(part)
    return found


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_what_is_written_comes_back_in_order(file: SpillFile, most: int) -> None:
    assert file.append(EVENTS[:2]) == 2
    assert file.append(EVENTS[2:]) == 1
    assert file.rows == 3
    assert all_of(file, most) == EVENTS
    assert file.rows == 0


def test_windows_come_back_among_requests(file: SpillFile) -> None:
    told = [
        RecordedWindow(5, window()),
        finished(0),
        RecordedWindow(6, window(1, drafts=None, accepted_by_position=None, generated_tokens=None, rounded_to=100)),
    ]
    assert file.append(told) == 3
    assert file.all() == told
    assert all_of(file) == told


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Whose lines are requests, without a tag and with fewer members."""
    path = tmp_path / "spill"
    path.write_bytes(EARLIER_LINE + b"\0")
    file = SpillFile(path)
    file.open()
    (event,) = all_of(file)
    assert event == finished(0, request_id=42, context=None, instance_id=None, profile_id="p", report=EMPTY)
    file.close()


EARLIER_LINE = (
    b'{"request_id":42,"client_request_id":null,"instance_id":null,"context":null,"profile_id":"p",'
    b'"requested_model":"gemma","route_reason":"id","endpoint":"chat_completions","stream":true,"outcome":"completed",'
    b'"status_code":200,"error":null,"queue_us":1500,"time_to_first_token_us":250000,"duration_us":2000000,"report":{}}'
    b"\n"
)


def test_it_is_there_after_the_process(file: SpillFile) -> None:
    file.append(EVENTS)
    later = SpillFile(file.path, bytes_reserved=4096)
    later.open()
    assert later.rows == 3
    later.append([finished(9)])
    assert all_of(later) == [*EVENTS, finished(9)]
    later.close()


def test_what_is_done_does_not_come_back(file: SpillFile) -> None:
    for number in range(40):  # more than is reserved
        file.append([finished(number)])
    assert len(all_of(file)) == 40
    file.append([finished(99)])
    later = SpillFile(file.path, bytes_reserved=4096)
    later.open()
    assert all_of(later) == [finished(99)]
    later.close()
    assert file.path.stat().st_size == 4096


@pytest.mark.parametrize("torn", [b'{"request_id": 12', b"\x93\xff", b""])
def test_a_line_that_was_not_finished_is_overwritten(file: SpillFile, torn: bytes) -> None:
    file.append(EVENTS)
    file.close()
    data = file.path.read_bytes()
    end = data.index(b"\0")
    file.path.write_bytes(data[:end] + torn + data[end + len(torn) :])
    later = SpillFile(file.path, bytes_reserved=4096)
    later.open()
    assert later.rows == 3
    later.append([rejected(8)])
    assert all_of(later) == [*EVENTS, rejected(8)]
    later.close()


def test_a_line_that_is_none_costs_no_other(file: SpillFile) -> None:
    file.append(EVENTS)
    file.close()
    lines = file.path.read_bytes().splitlines(keepends=True)
    members = json.loads(lines[1])
    members["outcome"] = "a word of a newer version"
    lines[1] = json.dumps(members).encode() + b"\n"
    file.path.write_bytes(b"".join(lines))
    later = SpillFile(file.path)
    later.open()
    part = later.front(10)
    assert (list(part.values), part.unreadable) == ([EVENTS[0], EVENTS[2]], 1)
    later.done(part)
    assert later.rows == 0
    later.close()


def test_the_bound_holds_and_the_first_ones_are_kept(tmp_path: Path) -> None:
    file = SpillFile(tmp_path / "spill", bytes_most=3000)
    file.open()
    events = [finished(number) for number in range(20)]
    count = file.append(events)
    assert 0 < count < 20
    assert file.append(events[count:]) == 0
    assert file.path.stat().st_size <= 3000
    assert all_of(file) == events[:count]
    assert file.append(events[:1]) == 1
    file.close()


def test_half_a_pair_of_surrogates_is_kept_as_it_can_be(file: SpillFile) -> None:
    file.append([finished(0, requested_model="half \ud800 pair", error="plain")])
    (event,) = all_of(file)
    assert isinstance(event, RequestFinished)
    assert (event.requested_model, event.error) == ("half ? pair", "plain")


def test_a_file_that_is_not_open_takes_nothing(tmp_path: Path) -> None:
    assert SpillFile(tmp_path / "spill").append(EVENTS) == 0


FULL = """
import resource, sys
from pathlib import Path
from fakes.finished_requests import finished
from app.telemetry.spill import SpillFile
file = SpillFile(Path(sys.argv[1]), bytes_reserved=4096)
file.open()
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
print(file.append([finished(number) for number in range(100)]), file.append([finished(100)]))
"""


def test_a_disk_without_room_keeps_what_went_in(tmp_path: Path) -> None:
    """A limit of the kernel on the size of files is as a full disk: a write fails in the middle of a line."""
    path = tmp_path / "spill"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    count, later_count = map(int, ran.stdout.split())
    assert 10 <= count < 20
    assert later_count == 0
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 10_000
    file = SpillFile(path)
    file.open()
    assert all_of(file) == [finished(number) for number in range(count)]
    file.close()
