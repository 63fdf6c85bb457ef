"""POST /profiles/import: raw llama-server command lines as profiles, with a note for each part."""

import asyncio
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from app.errors import EngineError, ModelFileError, ProfileExists
from app.inventory.models import ModelFile, read_model, resolve_model_path
from app.llama_server.command_line import (
    CommandLineInvalid,
    Known,
    Note,
    NoteKind,
    ParsedCommand,
    parse_text,
    parse_words,
)
from app.llama_server.probe import EngineProbe
from app.profiles.catalog import ProfileCatalog
from app.profiles.profile import LaunchProfile, parse_profile

_CHARACTERS_MAX = 64 * 1024
_WORDS_MAX = 2_000
_INI = re.compile(r"^\s*\[[^\]\n]+\]\s*$", re.MULTILINE)
_YAML = re.compile(r"^(?:models|groups|macros)\s*:", re.MULTILINE)


class ImportBody(BaseModel):
    """The text of a command line or script, or the words of one command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: (
        Annotated[str, StringConstraints(max_length=_CHARACTERS_MAX)]
        | Annotated[list[Annotated[str, StringConstraints(max_length=_CHARACTERS_MAX)]], Field(max_length=_WORDS_MAX)]
    ) = Field(examples=["llama-server -m models/a.gguf -ngl 99 -c 8192"])


class NoteResource(BaseModel):
    """One part of the command line and what became of it; `field` and `value` are what the profile says for it."""

    kind: NoteKind
    said: str
    message: str
    field: str | None = None
    value: Any = None


class ImportedProfile(BaseModel):
    """A profile and how it came about."""

    profile: LaunchProfile
    notes: list[NoteResource]


class Imported(BaseModel):
    """Every llama-server command that was found."""

    profiles: list[ImportedProfile]


def router(catalog: ProfileCatalog, probe: EngineProbe, model_dirs: Sequence[Path]) -> APIRouter:
    """The route; files that a command line names are looked into where they lie in the model folders."""
    routes = APIRouter(tags=["profiles"])

    @routes.post(
        "/profiles/import",
        responses={
            201: {"model": Imported, "description": "the profiles were saved"},
            409: {"description": "a profile with that id exists already"},
            422: {"description": "no profile can be made of it"},
        },
    )
    async def import_profiles(body: ImportBody, response: Response, save: bool = False) -> Imported:
        """Understand llama-server command lines. Nothing is stored unless `save` is true."""
        known = await _known(probe, model_dirs)
        parsed = await asyncio.to_thread(_parse, body.command, known)
        profiles = _with_ids_of_their_own([_profile(command) for command in parsed])
        if save:
            await _save(catalog, profiles)
            response.status_code = 201
        return Imported(
            profiles=[
                ImportedProfile(profile=profile, notes=[_resource(note) for note in command.notes])
                for profile, command in zip(profiles, parsed, strict=True)
            ]
        )

    return routes


async def _known(probe: EngineProbe, model_dirs: Sequence[Path]) -> Known:
    """Devices and flags of the engine, where there is one; kinds and lengths of files in the model folders."""

    @functools.cache
    def model(path: str) -> ModelFile | None:
        try:
            return read_model(resolve_model_path(path, model_dirs))
        except ModelFileError:
            return None

    def draft_kind(path: str) -> str | None:
        found = model(path)
        return found.kind.value if found else None

    def trained_length(path: str) -> int | None:
        found = model(path)
        return found.context_length_trained if found else None

    try:
        facts = await probe.facts()
    except EngineError:
        return Known(draft_kind=draft_kind, trained_length=trained_length)
    return Known(facts.device_names, facts.flags, draft_kind, trained_length)


def _parse(command: str | list[str], known: Known) -> tuple[ParsedCommand, ...]:
    if isinstance(command, list):
        return (parse_words(command, known),)
    if _INI.search(command) or _YAML.search(command):
        kind = "a llama.cpp preset INI" if _INI.search(command) else "a llama-swap YAML"
        raise _invalid(
            f"this looks like {kind}, and only llama-server command lines can be imported yet: take the command out of "
            "it, and send that"
        )
    return parse_text(command, known)


def _profile(parsed: ParsedCommand) -> LaunchProfile:
    """The profile. Raises CommandLineInvalid where no model file is named, with what was refused instead."""
    if not parsed.is_complete:
        refused = [
            {"field": note.said, "message": note.message} for note in parsed.notes if note.kind is NoteKind.REFUSED
        ]
        raise CommandLineInvalid(
            "the command line names no model file: add -m FILE with a GGUF file from a model folder", refused
        )
    return parse_profile(parsed.profile_document)


def _with_ids_of_their_own(profiles: Sequence[LaunchProfile]) -> list[LaunchProfile]:
    """Two commands on one file shall not be one profile: the second gets a number."""
    taken: set[str] = set()
    numbered = []
    for profile in profiles:
        chosen, number = profile.id, 1
        while chosen in taken:
            number += 1
            chosen = f"{profile.id[:60]}-{number}"
        taken.add(chosen)
        numbered.append(profile.model_copy(update={"id": chosen}))
    return numbered


async def _save(catalog: ProfileCatalog, profiles: Sequence[LaunchProfile]) -> None:
    """All or none, as far as ids that exist already can tell."""
    for profile in profiles:
        if (stored := catalog.find(profile.id)) is not None:
            raise ProfileExists(
                f'a profile "{profile.id}" exists already, at revision {stored.revision}; nothing was saved: give the '
                "command another --alias",
                profile_id=profile.id,
            )
    for profile in profiles:
        await catalog.create(profile)


def _resource(note: Note) -> NoteResource:
    return NoteResource(kind=note.kind, said=note.said, message=note.message, field=note.field, value=note.value)


def _invalid(message: str) -> CommandLineInvalid:
    return CommandLineInvalid(
        f"the command line cannot be imported: {message}", [{"field": "command", "message": message}]
    )
