"""Where a model file lies: inside the model folders, and beside the other parts of its set."""

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from app.errors import ModelFileMissing, ModelFileOutside, ModelFileUnreadable
from app.inventory.gguf_cursor import shown
from app.near_names import near_names

PARTS_MAX: Final = 1024
_SET_NAME: Final = re.compile(r"(.+[-._])([0-9]{5})-of-([0-9]{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
_NAME_CHARACTERS_MAX: Final = 255
_ENTRIES_SCANNED_MAX: Final = 2_000
_FOLDERS_DEEP_MAX: Final = 4


def part_paths(path: Path) -> tuple[Path, ...]:
    """All parts of the set that `path` is a part of, by its name, first part first.

    A file whose name is not that of a part is alone. Nothing is looked up on disk.
    Raises ModelFileUnreadable for a name that contradicts itself (part 5 of 3).
    """
    match = _SET_NAME.fullmatch(path.name)
    if match is None:
        return (path,)
    stem, number, count, suffix = match[1], int(match[2]), int(match[3]), match[4]
    if not 1 <= number <= count <= PARTS_MAX:
        raise ModelFileUnreadable(
            f"{shown(path)}: expected a part from 1 to its count, and at most {PARTS_MAX} parts, "
            f"saw part {number} of {count}: name the files as llama-gguf-split does",
            path=shown(path),
        )
    return tuple(path.with_name(f"{stem}{part:05d}-of-{count:05d}{suffix}") for part in range(1, count + 1))


def resolve_model_path(text: str, model_dirs: Sequence[Path]) -> Path:
    """The file that a profile's `path` means, as an absolute path that keeps the file's own name.

    Relative paths are looked up in the model folders in their order. Wherever links and `..` lead,
    the file and all parts of its set must lie in one of the folders. A link keeps its name (that of
    a part says which set it belongs to) while the folder it lies in is resolved.
    Raises ModelFileOutside, ModelFileMissing (with near names), or ModelFileUnreadable.
    """
    if not _encodable(text):
        raise _missing(text, model_dirs)
    roots = [os.path.realpath(folder) for folder in model_dirs]
    # Joining an absolute path to a folder gives that path, so it is judged the same way.
    for candidate in dict.fromkeys(folder / text for folder in model_dirs):
        # Before asking whether it exists: the answer would tell about files outside.
        _demand_inside(candidate, roots, text, model_dirs)
        if not exists(candidate):
            continue
        if candidate.is_dir():
            raise ModelFileUnreadable(
                f"{_quoted(text)} is a folder: name the .gguf file in it",
                path=shown(candidate),
            )
        found = Path(os.path.realpath(candidate.parent)) / candidate.name
        for part in part_paths(found):
            _demand_inside(part, roots, text, model_dirs)
        return found
    if not model_dirs:
        raise ModelFileOutside("there is no model folder: add one to PACELINE_MODEL_DIRS", folders=[])
    raise _missing(text, model_dirs)


def exists(path: Path) -> bool:
    """Whether something is there that can be reached; a link to nothing is nothing."""
    try:
        return path.exists()
    except OSError:
        return False


def _encodable(text: str) -> bool:
    """Whether the operating system can look for that name at all."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _demand_inside(candidate: Path, roots: Sequence[str], text: str, model_dirs: Sequence[Path]) -> None:
    real = Path(os.path.realpath(candidate))
    if any(real.is_relative_to(root) for root in roots):
        return
    folders = [shown(folder) for folder in model_dirs]
    raise ModelFileOutside(
        f"{_quoted(text)} leads out of the model folders ({', '.join(folders)}): "
        "move the file into one of them, or add its folder to PACELINE_MODEL_DIRS",
        path=_quoted(text),
        folders=folders,
        setting="PACELINE_MODEL_DIRS",
    )


def _missing(text: str, model_dirs: Sequence[Path]) -> ModelFileMissing:
    folders = [shown(folder) for folder in model_dirs]
    near = _near(text, model_dirs)
    hint = f"did you mean {' or '.join(near)}?" if near else "put the file there, or correct the path"
    return ModelFileMissing(
        f"there is no {_quoted(text)} in the model folders ({', '.join(folders)}): {hint}",
        path=_quoted(text),
        folders=folders,
        near=near,
    )


def _near(text: str, folders: Sequence[Path]) -> list[str]:
    """Up to three files whose name resembles the one asked for, relative to their folder."""
    wanted = Path(text[-_NAME_CHARACTERS_MAX:]).name
    by_name: dict[str, list[str]] = {}
    for folder in folders:
        for file in gguf_files(folder, _ENTRIES_SCANNED_MAX):
            by_name.setdefault(file.name, []).append(shown(file.relative_to(folder)))
    return [relative for name in near_names(wanted, by_name) for relative in by_name[name]][:3]


def gguf_files(folder: Path, entries_max: int) -> Iterator[Path]:
    """The .gguf files under a folder, nearest first; never through a link to a folder.

    At most `entries_max` directory entries are looked at, and folders to a fixed depth.
    """
    waiting, seen = deque([(folder, 0)]), 0
    while waiting:
        inside, depth = waiting.popleft()
        try:
            with os.scandir(inside) as entries:
                for entry in entries:
                    seen += 1
                    if seen > entries_max:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _FOLDERS_DEEP_MAX:
                            waiting.append((inside / entry.name, depth + 1))
                    elif entry.name.lower().endswith(".gguf"):
                        yield inside / entry.name
        except OSError:
            continue


def _quoted(text: str) -> str:
    return shown(text if len(text) <= _NAME_CHARACTERS_MAX else f"{text[:_NAME_CHARACTERS_MAX]}…")
