"""The log files of lives: the newest are kept."""

import logging
from collections.abc import Set as AbstractSet
from pathlib import Path

from app.identifiers import parse_id

_log = logging.getLogger(__name__)


def prune_logs(folder: Path, kept: int, living: AbstractSet[int]) -> int:
    """Remove the log files of all but the `kept` newest lives, and never one that lives; how many lives were removed.

    Only files named by an instance id are looked at, `<id>.log` and what was rotated of it. Ids sort by time.
    """
    files: dict[int, list[Path]] = {}
    for path in folder.glob("*.log*"):
        identifier = parse_id(path.name.partition(".")[0])
        if identifier is not None and path.name.partition(".")[2] in ("log", "log.1"):
            files.setdefault(identifier, []).append(path)
    gone = sorted(files.keys() - living, reverse=True)[max(0, kept - len(files.keys() & living)) :]
    for path in (path for identifier in gone for path in files[identifier]):
        try:
            path.unlink(missing_ok=True)
        except OSError as failure:
            _log.warning("%s cannot be removed: %s", path, failure)
    return len(gone)
