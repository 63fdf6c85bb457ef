"""`python -m bench [relay|idle|recorder|placement] [--quick] [--full] [--variants]`: costs, and how near plans are."""

import argparse
import sys

from bench import headers, idle, placement_accuracy, recorder, relay

_ROWS, _ROWS_FULL, _ROWS_QUICK = 200_000, 1_000_000, 20_000


def main() -> int:
    """Run what was asked for; 1 where a budget is exceeded or cannot be judged (never with --quick)."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What costs what, and how near the plan is.")
    parser.add_argument("what", nargs="?", choices=("relay", "idle", "recorder", "placement"), help="only this")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="less load; fails on errors, not on budgets")
    size.add_argument("--full", action="store_true", help=f"{_ROWS_FULL:,} rows for the recorder, else {_ROWS:,}")
    parser.add_argument("--variants", action="store_true", help="other HTTP clients and the relay alone as well")
    asked = parser.parse_args()
    status = 0
    if asked.what in (None, "relay"):
        status = relay.main(quick=asked.quick, variants=asked.variants)
    if asked.what in (None, "idle"):
        status = idle.main(quick=asked.quick) or status
    if asked.what in (None, "recorder"):
        recorder.run(_ROWS_QUICK if asked.quick else _ROWS_FULL if asked.full else _ROWS)
    if asked.what in (None, "placement"):
        placement_accuracy.run()
        headers.run()
    return status


if __name__ == "__main__":
    sys.exit(main())
