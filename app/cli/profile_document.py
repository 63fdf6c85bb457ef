"""A profile file that is not stored yet, read for a check."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from app.cli.client import ServiceClient, ServiceProblem
from app.errors import PacelineError
from app.profiles.folder import FileProblem
from app.profiles.yaml_documents import ProfileFileUnreadable, YamlDocument, read_documents

_SUFFIXES = (".yaml", ".yml", ".json")


class ProfileFileInvalid(PacelineError):
    """The file cannot be read, or holds no profile."""

    code = "profile-file-invalid"


def names_a_file(argument: str) -> bool:
    """Whether an argument means a file; ids have no slash and, by habit, no such ending."""
    return argument.endswith(_SUFFIXES) or "/" in argument


def refuse_model_file(argument: str) -> None:
    """Raise BadParameter where a model is named and a profile is meant."""
    if argument.endswith(".gguf"):
        raise typer.BadParameter(
            f"{argument} is a model, not a profile: `paceline suggest {argument}` writes profiles for it, and "
            f"`paceline inspect {argument}` says what it holds"
        )


def check_file(client: ServiceClient, path: Path, where: Mapping[str, Any]) -> Iterator[Any]:
    """The report on each profile of a file. Raises ProfileFileInvalid with the lines of what is wrong."""
    for document in read_profiles(path):
        profile = document.data if isinstance(document, YamlDocument) else document
        try:
            yield client.post("/check", {"profile": profile, **where})
        except ServiceProblem as failure:
            if failure.document.get("code") != "profile-invalid" or not failure.document.get("problems"):
                raise
            raise ProfileFileInvalid(_told(path, document, failure.document["problems"])) from failure


def _told(path: Path, document: Any, problems: Sequence[Mapping[str, str]]) -> str:
    """The problems of one profile, each with its line where the file is YAML."""
    lines = document.line_of if isinstance(document, YamlDocument) else lambda _: None
    return "\n".join(
        str(FileProblem.of_field(str(path), lines(found["field"]), found["field"], found["message"]))
        for found in problems
    )


def read_profiles(path: Path) -> Sequence[Any]:
    """The documents of a YAML stream, or the data of a JSON file. Raises ProfileFileInvalid with file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise ProfileFileInvalid(f"{path} cannot be read: {failure}") from failure
    try:
        if path.suffix == ".json":
            return [json.loads(text)]
        documents = read_documents(text)
    except json.JSONDecodeError as failure:
        raise ProfileFileInvalid(f"{path}:{failure.lineno}: not JSON: {failure.msg}") from failure
    except ProfileFileUnreadable as failure:
        raise ProfileFileInvalid(f"{path}:{failure.line}: {failure.message}") from failure
    if not documents:
        raise ProfileFileInvalid(f"{path} holds no profile")
    return documents
