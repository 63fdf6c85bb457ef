"""What names a build of the engine in records: its build number where it has one, else a digest of its program."""

import hashlib
import re
from pathlib import Path

_NUMBERED = re.compile(r"version: (?P<number>[1-9]\d*) \((?P<commit>\w+)\)")
_NAMED = re.compile(r"version: (?P<version>\S+) \(build (?P<number>\d+), commit (?P<commit>\w+)\)")
_PACKAGED = re.compile(r"version: .*\((?P<package>\w+) (?P<version>[\d.]+)\)")
_PLAIN = re.compile(r"version: (?P<version>.+)")
_HEAD_BYTES = 64 * 1024


def build_name(version_output: str, program: Path) -> str:
    """The name of this build, e.g. `b6543-1a2b3c4`, `xllamacpp-2026.10.11549` or, from source, `0.6.0-dev-9f86d081`.

    A source build has no number and two of them look alike, so a digest of the program and the libraries beside it
    (names, sizes and first 64 KiB) tells them apart.
    """
    if match := _NUMBERED.search(version_output):
        return f"b{match['number']}-{match['commit']}"
    if match := _NAMED.search(version_output):
        if int(match["number"]) > 0:
            return f"b{match['number']}-{match['commit']}"
        return f"{match['version']}-{_digest(program)}"
    if match := _PACKAGED.search(version_output):
        return f"{match['package']}-{match['version']}"
    if match := _PLAIN.search(version_output):
        return match["version"].strip()
    return f"unknown-{_digest(program)}"


def _digest(program: Path) -> str:
    digest = hashlib.blake2b(digest_size=4)
    libraries = sorted(path for path in program.parent.glob("lib*") if path.is_file() and not path.is_symlink())
    for path in (program, *libraries):
        with path.open("rb") as content:
            head = content.read(_HEAD_BYTES)
        digest.update(f"{path.name} {path.stat().st_size} ".encode() + head)
    return digest.hexdigest()
