"""What the service costs while nothing happens: three instances run, and nobody asks anything."""

import tempfile
import time
from pathlib import Path

from bench.cpu_time import cpu_seconds
from bench.service import PROFILE, running_service

BUDGET_SHARE = 0.01
_INSTANCES = 3
_SETTLING_SECONDS, _SETTLING_SECONDS_QUICK = 3.0, 0.5
_SECONDS, _SECONDS_QUICK = 30.0, 3.0


def main(*, quick: bool = False) -> int:
    """Print the share of a core that the service takes; 1 where that is over the budget (never when `quick`)."""
    with tempfile.TemporaryDirectory(prefix="pl-") as folder, running_service(Path(folder)) as service:
        for number in range(2, _INSTANCES + 1):
            service.start_another(f"{PROFILE}-{number}")
        time.sleep(_SETTLING_SECONDS_QUICK if quick else _SETTLING_SECONDS)
        before, began = cpu_seconds([service.pid]), time.monotonic()
        time.sleep(_SECONDS_QUICK if quick else _SECONDS)
        share = (cpu_seconds([service.pid]) - before) / (time.monotonic() - began)
    is_over = share > BUDGET_SHARE
    print(f"idle with {_INSTANCES} instances: {share:.2%} of a core, budget {BUDGET_SHARE:.0%}", end="")
    print(" - exceeded" if is_over else "")
    return int(is_over and not quick)
