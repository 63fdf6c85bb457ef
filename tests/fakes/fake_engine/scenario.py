"""What the fake should do, and the facts it leaves behind.

A scenario is the JSON object in `<model>.scenario.json`, laid over the one in
`<executable>.scenario.json`; both are optional, and an unknown key is an error. Two keys choose
among parts, each part being a scenario of its own that is laid over the rest:

    when      [{"arguments": ["--spec-draft-n-max", "4"], "then": {...}}, ...]
              a part holds when its arguments stand one after another on the command line
    launches  [{...}, {...}]   the n-th start with this model; the last part holds for ever after

Every fact is one JSON line in `<model>.events.jsonl`: `measured` (pid, argv; a dry run),
`started` (pid, argv, environment: names), `stalled`, `grandchild`, `zombie`, `foreign` (pid),
`ready`, `request`, `client_disconnected`, `answered`, `sigterm`, `exiting`.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


class BadScenario(Exception):
    """The scenario is not usable: a mistake in the test."""


@dataclass(frozen=True)
class Scenario:
    """Durations are seconds, counts are per request unless said otherwise."""

    # Load
    load_seconds: float = 0.0
    load_stderr: tuple[str, ...] = ()  # printed while loading, as they are
    load_grows_bytes: int = 0  # memory taken evenly over load_seconds, without a line
    # {"stderr": [lines], "exit_code": 1} or {"stderr": [lines], "signal": "SIGABRT"}
    fail_during_load: Mapping[str, Any] | None = None
    cuda_out_of_memory: bool = False  # the same with what a CUDA build says of a full card
    fail_at: float = 1.0  # the share of the load at which it fails
    stall_at: float | None = None  # the share of the load at which it comes on no more, and lives
    stall_computes: bool = False  # then it keeps a core busy
    leaves_grandchild: str | None = None  # "group" or "session": a process there that holds our pipes for a minute
    leaves_zombie: bool = False  # a child that ended and is not reaped
    # Of a launch that is only measured: {"stdout": [lines], "exit_code": 1}; without a code it waits
    dry_run: Mapping[str, Any] | None = None
    health_status: int = 200  # anything else: answered by /health for ever, from the start
    # Life
    abort_after_ready_seconds: float | None = None
    abort_on_first_request: bool = False
    hang_after_completions: int | None = None  # the next one gets no answer, while /health says 200
    ignore_sigterm: bool = False
    sigterm_needs_connections_closed: bool = False
    # Identity. true: 401 to everything; "except_health": as a llama-server with another key does
    wrong_key: bool | str = False
    foreign_listener: bool = False  # another program listens at our address and says that it is healthy
    model_path: str | None = None  # what /props says, when it should not be the truth
    speculative: bool | None = None  # what /slots says; None: as the command line implies
    n_ctx_slot: int | None = None
    devices: tuple[Mapping[str, Any], ...] | None = None  # name, description, total_mib, free_mib
    # Answers
    answer_tokens: int | None = None  # ends by itself after so many, with finish_reason "stop"
    cached_tokens: int = 0
    draft: Mapping[str, Any] | None = None  # n, accepted, optional drafts, by_position: [..]
    prompt_ms_per_token: float = 1.0  # what timings say; nothing waits for it
    generation_ms_per_token: float = 10.0
    slow_first_byte_seconds: float = 0.0  # before status and headers
    slow_first_token_seconds: float = 0.0  # after the headers, with pings
    chunk_interval_seconds: float = 0.0
    ping_interval_seconds: float | None = None  # None: as --sse-ping-interval says
    stream_chunks: tuple[str, ...] | None = None  # sent as they are instead of an answer
    # Faults of answers; `after chunks` counts data events, the role chunk among them
    midstream_error: Mapping[str, Any] | None = None  # after_chunks, optional error: {...}
    cut_stream_after_chunks: int | None = None
    cut_completions: Mapping[str, int] | None = None  # after, optional times: no byte of an answer to those
    # status, body, optional times: only the first so many completions
    error_status: Mapping[str, Any] | None = None
    # {"bytes": text, optional closes: true} or null for each of the first completions: sent as it is, a byte for each
    # character, instead of an answer
    raw_answers: tuple[Mapping[str, Any] | None, ...] = ()
    close_idle_connections_after: int | None = None  # requests per connection, unannounced
    keep_alive_seconds: float = 5.0


_LISTS = {"load_stderr", "devices", "stream_chunks", "raw_answers"}
_NAMES = {entry.name for entry in fields(Scenario)}


def load(sources: list[Path], arguments: list[str], launch: int) -> Scenario:
    """The scenario of the `launch`-th start (counted from 0); later sources win."""
    chosen: dict[str, Any] = {}
    for path in sources:
        if path.exists():
            chosen |= _chosen(json.loads(path.read_text()), arguments, launch)
    if unknown := chosen.keys() - _NAMES:
        raise BadScenario(f"unknown keys {sorted(unknown)}; known are {sorted(_NAMES)}")
    values: dict[str, Any] = {k: tuple(v) if k in _LISTS and v else v for k, v in chosen.items()}
    return Scenario(**values)


def _chosen(raw: dict[str, Any], arguments: list[str], launch: int) -> dict[str, Any]:
    launches, branches = raw.pop("launches", []), raw.pop("when", [])
    chosen = raw | (launches[min(launch, len(launches) - 1)] if launches else {})
    for branch in branches:
        wanted = branch["arguments"]
        starts = range(len(arguments) - len(wanted) + 1)
        if any(arguments[at : at + len(wanted)] == wanted for at in starts):
            chosen |= branch["then"]
    return chosen


@dataclass
class Events:
    """Appends facts to a file; without a path they are dropped."""

    path: Path | None
    launch: int = field(init=False, default=0)  # how many starts the file already told of

    def __post_init__(self) -> None:
        if self.path and self.path.exists():
            self.launch = self.path.read_text().count('{"event": "started"')

    def add(self, event: str, **details: Any) -> None:
        if self.path:
            line = json.dumps({"event": event, "unix_seconds": time.time(), **details}) + "\n"
            with self.path.open("a") as file:
                file.write(line)
