"""Reading a folder of profile files: values in, values out, nothing decided."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import ProfileInvalid
from app.profiles.profile import LaunchProfile, parse_profile
from app.profiles.yaml_documents import ProfileFileUnreadable, YamlDocument, read_documents

_FILE_MOST_BYTES = 1024 * 1024
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """What is wrong with a profile file; `line` counts from 1 and is None where the whole file is meant."""

    file: str
    line: int | None
    message: str

    @classmethod
    def of_field(cls, file: str, line: int | None, field: str, message: str) -> "FileProblem":
        """What a check of the profile says of one field, with what helps in a file: `id: 7` is a number there."""
        hint = ": put it in quotes" if re.search(r"\bvalid string\b", message) else ""
        return cls(file, line, f"{field or 'profile'}: {message}{hint}")

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.message}"


@dataclass(frozen=True, slots=True)
class FileContent:
    """The profiles of one file, each with its line; none of them where `is_good` is false."""

    profiles: Sequence[tuple[LaunchProfile, int]] = ()
    is_good: bool = True


def folder_state(folder: Path) -> object:
    """A value that differs once any profile file has; None where there is no folder."""
    try:
        return [(file.name, _file_state(file)) for file in _files_in(folder)]
    except OSError:
        return None


def read_folder(folder: Path) -> tuple[Mapping[str, FileContent] | None, list[FileProblem]]:
    """Every profile file by name, and all problems; no contents where the folder is there but cannot be read.

    A folder that does not exist holds no files.
    """
    try:
        files = _files_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except OSError as failure:
        return None, [FileProblem(folder.name, None, f"the folder cannot be read: {failure.strerror}")]
    contents: dict[str, FileContent] = {}
    problems: list[FileProblem] = []
    for file in files:
        profiles, found = _read_file(file)
        contents[file.name] = FileContent((), is_good=False) if found else FileContent(profiles)
        problems.extend(found)
    return contents, problems


def _files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and not file.name.startswith("."))


def _file_state(file: Path) -> tuple[int, ...] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _read_file(file: Path) -> tuple[list[tuple[LaunchProfile, int]], list[FileProblem]]:
    try:
        # A pipe would keep us waiting for a writer.
        if file.exists() and not (file.is_file() or file.is_dir()):
            return [], [FileProblem(file.name, None, "is not a regular file")]
        with file.open("rb") as stream:
            raw = stream.read(_FILE_MOST_BYTES + 1)
    except OSError as failure:
        return [], [FileProblem(file.name, None, f"cannot be read: {failure.strerror}")]
    if len(raw) > _FILE_MOST_BYTES:
        return [], [FileProblem(file.name, None, "is over 1 MiB, which no file of profiles needs")]
    try:
        documents = read_documents(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as failure:
        return [], [FileProblem(file.name, raw.count(b"\n", 0, failure.start) + 1, "is not UTF-8 text")]
    except ProfileFileUnreadable as failure:
        return [], [FileProblem(file.name, failure.line, failure.message)]
    return _profiles_of(file.name, documents)


def _profiles_of(
    file: str, documents: Sequence[YamlDocument]
) -> tuple[list[tuple[LaunchProfile, int]], list[FileProblem]]:
    profiles: dict[str, tuple[LaunchProfile, int]] = {}
    problems: list[FileProblem] = []
    for document in documents:
        try:
            profile = parse_profile(document.data)
        except ProfileInvalid as failure:
            problems.extend(
                FileProblem.of_field(file, document.line_of(found["field"]), found["field"], found["message"])
                for found in failure.problems
            )
            continue
        line = document.line_of("id")
        if profile.id in profiles:
            problems.append(FileProblem(file, line, f'profile "{profile.id}" stands here twice'))
        profiles[profile.id] = profile, line
    return list(profiles.values()), problems
