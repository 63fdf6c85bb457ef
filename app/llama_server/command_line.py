"""A raw llama-server command line, as people have it in their notes -> a profile document, and a note for each part.

Pure. Nothing is passed over in silence: every flag has a note, and so has every default of the engine that differs
from a profile's. What is refused is not in the document.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.llama_server.command_implied import settle_context, settle_loading, settle_placement, settle_speculation
from app.llama_server.command_notes import Note, NoteKind
from app.llama_server.command_reading import Reading
from app.llama_server.command_tables import FATAL_VARIABLES, SWITCHES, VARIABLES
from app.llama_server.command_values import Known, Unreadable, nested, problem_of, switch_value
from app.llama_server.command_words import Said, read_flags_said, split_head
from app.llama_server.environment import is_allowed
from app.llama_server.shell_text import CommandLineInvalid, ShellText, read_text
from app.profiles.profile import PROFILE_ID_PATTERN

__all__ = [
    "CommandLineInvalid",
    "Known",
    "Note",
    "NoteKind",
    "ParsedCommand",
    "parse_command_line",
    "parse_text",
    "parse_words",
]

_ID_CHARACTERS_MAX = 64
_SHOWN_MAX = 100
_PART = re.compile(r"[-._]\d{5}-of-\d{5}$")
_OUR_VARIABLES = re.compile(r"LLAMA_|AIP_|PACELINE_")
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A profile as plain data, with what it does not say left out, and the notes. Without a model file it has no
    `target`, so it is no profile yet: the refused notes say why.
    """

    profile_document: dict[str, Any]
    notes: tuple[Note, ...]

    @property
    def is_complete(self) -> bool:
        """Whether it names a model file."""
        return "target" in self.profile_document


def parse_command_line(
    words: Sequence[str], env: Mapping[str, str] | None = None, known: Known | None = None
) -> ParsedCommand:
    """Understand one command line, which may begin with variables and a wrapper. Any words are taken."""
    head = split_head(words)
    reading = Reading(known or Known())
    for name, value in {**(env or {}), **dict(head.variables)}.items():
        _read_variable(reading, name, value)
    if head.wrapper:
        reading.note(
            NoteKind.DROPPED, " ".join(head.wrapper), "Paceline starts the engine itself, and ends it with itself; "
            "start the service under it instead",
        )  # fmt: skip
    for said in read_flags_said(head.arguments, reading.known.flags):
        reading.read(said)
    settle_speculation(reading)
    settle_loading(reading)
    settle_context(reading)
    settle_placement(reading)
    _name(reading)
    if reading.extra:
        reading.fields["extra_args"] = [word for words in reading.extra.values() for word in words]
    return ParsedCommand(nested(reading.fields), tuple(reading.notes))


def parse_text(text: str, known: Known | None = None) -> tuple[ParsedCommand, ...]:
    """Every llama-server command in a text, such as a script. Raises CommandLineInvalid where there is none."""
    shell = read_text(text)
    exported: dict[str, str] = {}
    found = []
    for command in shell.commands:
        if command[0] == "export":
            exported.update(split_head(command[1:]).variables)
        elif _is_server_command(command):
            parsed = parse_command_line(command, exported, known)
            found.append(ParsedCommand(parsed.profile_document, (*_shell_notes(shell, command), *parsed.notes)))
    if not found:
        raise _no_server([command[0] for command in shell.commands[:5]])
    return tuple(found)


def parse_words(words: Sequence[str], known: Known | None = None) -> ParsedCommand:
    """One command that is split already. Raises CommandLineInvalid where it starts something else."""
    if not _is_server_command(words):
        raise _no_server(words[:1])
    return parse_command_line(words, known=known)


def _is_server_command(words: Sequence[str]) -> bool:
    """Whether it starts llama-server, or has flags alone."""
    head = split_head(words)
    return head.program is not None or (bool(head.arguments) and head.arguments[0].startswith("-"))


def _no_server(seen: Sequence[str]) -> CommandLineInvalid:
    shown = ", ".join(repr(word[:_SHOWN_MAX]) for word in seen) or "nothing"
    message = f"expected llama-server with its flags, saw {shown}"
    return CommandLineInvalid(
        f"there is no llama-server command: {message}", [{"field": "command", "message": message}]
    )


def _shell_notes(shell: ShellText, words: Sequence[str]) -> list[Note]:
    notes = [
        Note(NoteKind.UNEXPANDED, value, "a shell would replace it and Paceline does not: write what it stands for")
        for value in shell.unexpanded
        if any(word.startswith("~") if value == "~" else value in word for word in words)
    ]
    notes += [
        Note(NoteKind.CORRECTED, word, "a line before it ends without a backslash, or is a comment: a shell ends the "
             "command there; understood as one command")
        for word in shell.joined
        if word in words
    ]  # fmt: skip
    return notes


def _read_variable(reading: Reading, name: str, value: str) -> None:
    written = f"{name}=…" if _SECRET_VARIABLE.search(name) else f"{name}={value}"
    if today := FATAL_VARIABLES.get(name):
        reading.note(
            NoteKind.REMOVED, written, f"while it is set every start of llama-server fails, whatever the flags say; "
            f"{today} says it",
        )  # fmt: skip
    elif flag := VARIABLES.get(name):
        reading_flag = _as_flag(flag, value, written)
        if reading_flag is None:
            reading.note(NoteKind.DROPPED, written, f"off: as if {flag} were not said")
        elif isinstance(reading_flag, str):
            reading.note(NoteKind.REFUSED, written, reading_flag)
        else:
            reading.read(reading_flag)
    elif is_allowed(name) and not problem_of(f"env.{name}", value):
        reading.put(f"env.{name}", value, NoteKind.TRANSLATED, written)
    elif _OUR_VARIABLES.match(name):
        reading.note(
            NoteKind.REFUSED, written, "an engine of Paceline does not see it; the flag of that name may be taken"
        )
    else:
        reading.note(
            NoteKind.REFUSED, written, "a profile may not set it (the user guide lists those it may); set it where the "
            "service starts, if the engine needs it",
        )  # fmt: skip


def _as_flag(flag: str, value: str, written: str) -> Said | str | None:
    """A variable as the flag that it stands for; None for one that is off anyway, a sentence for one that is wrong."""
    if flag not in SWITCHES:
        return Said(flag, (value,), written)
    try:
        if switch_value(value):
            return Said(flag, (), written)
    except Unreadable as problem:
        return str(problem)
    negated = f"--no-{flag.removeprefix('--')}"
    return Said(negated, (), written) if negated in SWITCHES else None


def _name(reading: Reading) -> None:
    """The id: an alias where one can be an id, else the file's name."""
    aliases: list[str] = list(dict.fromkeys(reading.fields.pop("serving.aliases", [])))
    chosen = next((alias for alias in aliases if re.match(PROFILE_ID_PATTERN, alias)), None)
    if chosen is None:
        chosen = _id_of(reading.fields.get("target.path", ""))
        reading.note(NoteKind.IMPLIED, "-a", "the id comes from the file's name; requests may use it too", "id", chosen)
    else:
        reading.note(NoteKind.TRANSLATED, f"-a {chosen}", "the first alias that can be an id is the id", "id", chosen)
    aliases = [alias for alias in aliases if alias != chosen]
    if aliases:
        reading.fields["serving.aliases"] = aliases
    reading.fields = {"id": chosen, **reading.fields}


def _id_of(path: str) -> str:
    name = re.split(r"[/\\]", path)[-1].lower().removesuffix(".gguf")
    name = re.sub(r"[^a-z0-9._-]+", "-", _PART.sub("", name)).lstrip("._-")
    return name[:_ID_CHARACTERS_MAX].rstrip("-._") or "imported"
