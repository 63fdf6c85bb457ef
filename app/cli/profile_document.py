"""A profile file that is not stored yet, read for a check."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.errors import PacelineError
from app.profiles.yaml_documents import ProfileFileUnreadable, read_documents

_SUFFIXES = (".yaml", ".yml", ".json")


class ProfileFileInvalid(PacelineError):
    """The file cannot be read, or holds no profile."""

    code = "profile-file-invalid"


def names_a_file(argument: str) -> bool:
    """Whether an argument means a file; ids have no slash and, by habit, no such ending."""
    return argument.endswith(_SUFFIXES) or "/" in argument


def read_profiles(path: Path) -> Sequence[Any]:
    """The documents of a YAML stream, or the one of a JSON file. Raises ProfileFileInvalid with file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise ProfileFileInvalid(f"{path} cannot be read: {failure}") from failure
    try:
        if path.suffix == ".json":
            return [json.loads(text)]
        documents = [document.data for document in read_documents(text)]
    except json.JSONDecodeError as failure:
        raise ProfileFileInvalid(f"{path}:{failure.lineno}: not JSON: {failure.msg}") from failure
    except ProfileFileUnreadable as failure:
        raise ProfileFileInvalid(f"{path}:{failure.line}: {failure.message}") from failure
    if not documents:
        raise ProfileFileInvalid(f"{path} holds no profile")
    return documents
