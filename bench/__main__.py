"""`python -m bench [PART] [OPTIONS]`: what it costs, how near plans are."""

import argparse
import sys

from bench import beside, headers, idle, placement_accuracy, recorder, relay, rollups, scrape

_ROWS, _ROWS_FULL, _ROWS_QUICK = 200_000, 1_000_000, 20_000


def main() -> int:
    """Run what was asked for; 1 where a budget is exceeded or cannot be judged (never with --quick)."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What costs what, and how near the plan is.")
    parts = ("relay", "idle", "scrape", "recorder", "rollups", "beside", "placement")
    parser.add_argument("what", nargs="?", choices=parts, help="only this")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="less load; fails on errors, not on budgets")
    size.add_argument("--full", action="store_true", help=f"{_ROWS_FULL:,} rows to record and roll up, else {_ROWS:,}")
    parser.add_argument("--variants", action="store_true", help="other HTTP clients and the relay alone as well")
    parser.add_argument("--any-core", action="store_true", help="the scheduler places servers, engines and clients")
    asked = parser.parse_args()
    status = 0
    if asked.what in (None, "relay"):
        status = relay.main(quick=asked.quick, variants=asked.variants, apart=not asked.any_core)
    if asked.what in (None, "idle"):
        status = idle.main(quick=asked.quick) or status
    if asked.what in (None, "scrape"):
        over = scrape.run()
        status = status if asked.quick else over or status
    if asked.what in (None, "recorder"):
        over = recorder.run(_ROWS_QUICK if asked.quick else _ROWS_FULL if asked.full else _ROWS)
        status = status if asked.quick else over or status
    if asked.what in (None, "rollups"):
        over = rollups.run(_ROWS_QUICK if asked.quick else _ROWS_FULL if asked.full else _ROWS)
        status = status if asked.quick else over or status
    if asked.what in (None, "beside"):
        status = beside.run(_ROWS_QUICK if asked.quick else _ROWS, quick=asked.quick) or status
    if asked.what in (None, "placement"):
        placement_accuracy.run()
        headers.run(quick=asked.quick)
    return status


if __name__ == "__main__":
    sys.exit(main())
