"""Copies what a service keeps, also while it runs: `backup.py DATA_FOLDER [DATABASE] > paceline.tar`.

In the archive are the database, the rows that wait for it, the profiles and the admin key. It needs nothing but Python,
so that it can be given to that of a container, and for a moment as much room in the data folder as the database has.
docs/deployment.md says how a copy is put back.
"""

import io
import signal
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

WAITING = ("telemetry.spill", "instances.spill")
OTHERS = ("profiles", "admin.key")


def main(arguments: Sequence[str]) -> int:
    """Exit status 0: the archive is whole; nothing is written before all of it is known to be there."""
    if len(arguments) not in (1, 2):
        return _failed("usage: backup.py DATA_FOLDER [DATABASE] > paceline.tar")
    if sys.stdout.isatty():
        return _failed("the archive goes to standard output: backup.py DATA_FOLDER > paceline.tar")
    folder = Path(arguments[0]).resolve()
    # Or the copy of the database would stay in the folder.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(1))
    try:
        # First, and then the database: a row that moves over in between is in both, and recorded once all the same.
        waiting = {name: _lines(folder / name) for name in WAITING if (folder / name).exists()}
        with tempfile.TemporaryDirectory(prefix="backup-", dir=folder) as scratch:
            copy = Path(scratch) / "paceline.db"
            _copy_database(Path(arguments[1]) if len(arguments) == 2 else folder / "paceline.db", copy)
            _write_archive(folder, copy, waiting)
            rows = sum(lines.count(b"\n") for lines in waiting.values())
            print(f"database: {copy.stat().st_size} bytes; waiting for it: {rows} rows", file=sys.stderr)
    except (OSError, sqlite3.Error, tarfile.TarError) as failure:
        return _failed(f"no copy of {folder}: {failure}")
    return 0


def _lines(path: Path) -> bytes:
    """A zero byte ends what counts; a line that is being written is not in the copy."""
    return path.read_bytes().partition(b"\0")[0]


def _copy_database(database: Path, copy: Path) -> None:
    """As it is at one moment: in one step, which waits for nobody who writes, nor does anybody wait for it."""
    opened = sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
    with closing(opened) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        found = target.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"{database} is damaged ({found}): keep an earlier copy")


def _write_archive(folder: Path, copy: Path, waiting: Mapping[str, bytes]) -> None:
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        owned = archive.gettarinfo(str(folder))
        for name, lines in waiting.items():
            archive.addfile(_private(tarfile.TarInfo(name), owned, len(lines)), io.BytesIO(lines))
        with copy.open("rb") as data:
            archive.addfile(_private(tarfile.TarInfo("paceline.db"), owned, copy.stat().st_size), data)
        for name in OTHERS:
            if (folder / name).exists():
                # Itself a link, it would be one in the copy, to a place that another machine does not have.
                archive.add((folder / name).resolve(), name, filter=_told)


def _told(member: tarfile.TarInfo) -> tarfile.TarInfo:
    if member.issym():
        print(f"{member.name} is a link: not in the copy is what it points at, {member.linkname}", file=sys.stderr)
    return member


def _private(member: tarfile.TarInfo, owned: tarfile.TarInfo, size_bytes: int) -> tarfile.TarInfo:
    """It belongs to whom the folder belongs, whoever makes the copy."""
    member.size, member.mode, member.mtime = size_bytes, 0o600, owned.mtime
    member.uid, member.gid = owned.uid, owned.gid
    return member


def _failed(said: str) -> int:
    print(said, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
