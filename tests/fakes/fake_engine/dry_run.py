"""A launch that is only measured: `--fit on` with `--log-jsonl`, the caller ends it when it has read enough.

It leaves the fact `measured`, so that a check does not count as a start.
"""

import json
import os
import time
from typing import Any

from .command_line import Options
from .scenario import Events, Scenario


def is_asked(options: Options) -> bool:
    return options.value("--fit") == "on" and options.used("--log-jsonl") == "--log-jsonl"


def play(options: Options, scenario: Scenario, events: Events, argv: list[str]) -> int:
    """The lines of the scenario, else the breakdown of a launch that takes next to nothing; then the end."""
    events.add("measured", pid=os.getpid(), argv=argv)
    part = scenario.dry_run or {}
    for line in part.get("stdout", _tiny_launch(options)):
        print(line, flush=True)
    if "exit_code" in part:
        return int(part["exit_code"])
    time.sleep(60)
    return 0


def _tiny_launch(options: Options) -> list[str]:
    def breakdown(device_names: list[str]) -> str:
        rows: list[dict[str, Any]] = [{"kind": "device", "name": name} for name in device_names]
        rows.append({"kind": "host", "name": "Host"})
        nothing = {"self": 0, "model": 0, "context": 0, "compute": 0}
        data = {"unit": "MiB", "rows": [row | nothing for row in rows]}
        return json.dumps({"type": "fit_memory_breakdown", "data": data})

    def said(text: str) -> str:
        return json.dumps({"type": "log", "time": 1000, "level": "info", "msg": text + "\n"})

    def names(flag: str) -> list[str]:
        return [name for name in options.value(flag).split(",") if name not in ("", "none")]

    lines = [breakdown(names("--device"))]
    if options.value("--model-draft") or "draft-mtp" in options.value("--spec-type"):
        lines.append(said("operator(): getting device memory data for the extra model at a context size of 4096:"))
        lines.append(breakdown(names("--device-draft") or names("--device")))
    return [*lines, said("common_params_fit_impl: projected to use 0 MiB of host memory")]
