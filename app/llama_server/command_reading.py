"""What the flags of a command line say, one after another, gathered into fields of a profile and notes. Pure."""

from dataclasses import dataclass, field, replace
from typing import Any

from app.llama_server.command_notes import Note, NoteKind
from app.llama_server.command_tables import (
    ACCUMULATING,
    DOWNLOADS,
    DROPPED,
    KNOWN,
    LOADING,
    NGRAM,
    OLD_NAMES,
    OLD_NGRAM,
    OPTIONAL_VALUE,
    REMOVED,
    SWITCHES,
)
from app.llama_server.command_values import Known, Understood, Unreadable, problem_of, understand
from app.llama_server.command_words import Said
from app.llama_server.extra_args import FILE_VALUED, OWNED_BY_FIELD, is_allowed, refusal
from app.llama_server.flags import SPEC_TYPES
from app.near_names import near_names
from app.speculative.parameters import NGRAM_MOD_LENGTH_MAX, NGRAM_MOD_LENGTH_MIN, NGRAM_MOD_MATCH, Method

METHODS = {name: method for method, name in SPEC_TYPES.items()}
_OLD_TYPES = {"draft": "draft-simple", **{name: f"draft-{name}" for name in ("mtp", "eagle3", "dflash", "dspark")}}
_PER_SLOT = "--kv-unified-per-slot"
_FIT_CONTEXT = ("-fitc", "--fit-ctx")
_HINTS_MAX = 10
_NAME_MAX = 40
_AGAIN = "said again later, and the last one counts"


@dataclass(slots=True)
class Reading:
    """Fields by dotted path and notes in the order of the words. `said` has every field that was named, null too."""

    known: Known
    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    types: list[str] = field(default_factory=list)
    ngram: list[tuple[str | None, str, int, int]] = field(default_factory=list)
    loading: list[tuple[str, int]] = field(default_factory=list)
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)
    per_slot: int | None = None
    unknown: int = 0
    _note_at: dict[str, int] = field(default_factory=dict)

    def note(self, kind: NoteKind, said: str, message: str, path: str | None = None, value: Any = None) -> int:
        """Say what became of a part of the line; the note's place."""
        self.notes.append(Note(kind, said, message, path, value))
        return len(self.notes) - 1

    def renote(self, at: int, kind: NoteKind, message: str, path: str | None = None, value: Any = None) -> None:
        """What was noted turned out otherwise."""
        self.notes[at] = replace(self.notes[at], kind=kind, message=message, field=path, value=value)

    def put(self, path: str, value: Any, kind: NoteKind, said: str, message: str = "") -> None:
        """The field now has this value; an earlier one no longer counts."""
        if path in self._note_at:
            self.renote(self._note_at[path], NoteKind.DROPPED, _AGAIN)
        self.said.add(path)
        self.fields.pop(path, None)
        if value is not None:
            self.fields[path] = value
        self._note_at[path] = self.note(kind, said, message, path, value)

    def withdraw(self, path: str, kind: NoteKind, message: str) -> None:
        """The field cannot be in the profile after all."""
        self.fields.pop(path, None)
        if path in self._note_at:
            self.renote(self._note_at[path], kind, message)

    def read(self, flag: Said) -> None:
        """Take one flag."""
        if flag.is_stray:
            self.note(NoteKind.REFUSED, flag.written, "it stands where a flag should: llama-server would exit")
            return
        kind, name, why = NoteKind.TRANSLATED, flag.name, flag.as_written
        if old := OLD_NAMES.get(name):
            kind, name = (NoteKind.RENAMED if old.existed else NoteKind.CORRECTED), old.today
            gone = "no longer has" if old.existed else "never had"
            why = f"llama-server {gone} {flag.name} and would exit; {name} says it today"
        elif why:
            kind = NoteKind.CORRECTED
        if name not in SWITCHES and name not in OPTIONAL_VALUE and not flag.values and name in KNOWN:
            self.note(NoteKind.REFUSED, flag.written, "it has no value: llama-server would take what follows for it")
        else:
            self._take(replace(flag, name=name), kind, why)

    def _take(self, flag: Said, kind: NoteKind, why: str) -> None:
        name = flag.name
        if name in LOADING:
            self.loading.append((name, self.note(NoteKind.RENAMED, flag.written, "")))
        elif name in OLD_NGRAM:
            self._limit(flag, None, OLD_NGRAM[name], NoteKind.RENAMED, "each n-gram method has a flag of its own today")
        elif name in NGRAM:
            self._limit(flag, *NGRAM[name], kind, why)
        elif name == "--tags":
            self._owned(flag, "tags", kind, why)
        elif path := OWNED_BY_FIELD.get(name):
            self._owned(flag, path, kind, why)
        elif name in REMOVED:
            self.note(NoteKind.REMOVED, flag.written, f"gone from llama-server: {REMOVED[name]}")
        elif name in DROPPED:
            self.note(NoteKind.DROPPED, flag.written, DROPPED[name])
        elif name in DOWNLOADS:
            self.note(
                NoteKind.REFUSED,
                flag.written,
                "it downloads, and Paceline downloads nothing: put the file into a model folder and name it "
                "(-m for the target, -md for a draft, --mmproj for a projector)",
            )
        elif is_allowed(name):
            self._keep(flag, kind, why)
        else:
            self.note(NoteKind.REFUSED, flag.written, self._refusal(name))

    def _refusal(self, name: str) -> str:
        if name in KNOWN or name in self.known.flags:
            return refusal(name)
        engine = (
            "the engine at hand has no such flag and" if self.known.flags else "no such flag is known: llama-server"
        )
        self.unknown += 1
        # Looking for near names takes a millisecond.
        names = sorted(KNOWN | self.known.flags.keys()) if self.unknown <= _HINTS_MAX else []
        near = near_names(name[:_NAME_MAX], names, most=2)
        return f"{engine} would exit" + (f"; did you mean {' or '.join(near)}?" if near else "")

    def _keep(self, flag: Said, kind: NoteKind, why: str) -> None:
        words = (flag.name, *flag.values)
        if problem := problem_of("extra_args", words):
            self.note(NoteKind.REFUSED, flag.written, problem)
            return
        if flag.name in ACCUMULATING:
            self.extra[flag.name] = (*self.extra.get(flag.name, ()), *words)
        else:
            # The last one counts, also against another name of the same flag, so it goes to the end.
            self.extra.pop(flag.name, None)
            self.extra[flag.name] = words
        remark = "its file must lie in a model folder" if flag.name in FILE_VALUED else ""
        kept = NoteKind.KEPT if kind is NoteKind.TRANSLATED else kind
        self.note(kept, flag.written, _sentences(why, remark), "extra_args", list(words))

    def _owned(self, flag: Said, path: str, kind: NoteKind, why: str) -> None:
        if path == "PACELINE_RPC":
            self.note(NoteKind.DROPPED, flag.written, f"the service knows its devices: set PACELINE_RPC={flag.value}")
        elif flag.name in _FIT_CONTEXT:
            self.note(
                NoteKind.DROPPED, flag.written, "it bounds how far fitting may shrink a context; context.size says it"
            )
        elif path == "speculation.method":
            self._methods(flag, kind, why)
        else:
            try:
                understood = self._value(flag, path)
            except Unreadable as problem:
                self.note(NoteKind.REFUSED, flag.written, str(problem))
                return
            self._put_owned(flag, path, understood, kind, why)

    def _value(self, flag: Said, path: str) -> Understood:
        if path == "context.unified_kv":
            return Understood(not flag.name.startswith(("-no", "--no")))
        if flag.name in SWITCHES:
            return Understood("all")
        if flag.value is None:
            return Understood("on", f"{flag.name} takes on, off or auto today; without one llama-server would exit")
        return understand(path, flag.value, self.known)

    def _put_owned(self, flag: Said, path: str, understood: Understood, kind: NoteKind, why: str) -> None:
        value = understood.value
        if flag.name == _PER_SLOT:
            self.per_slot = value
            self.note(kind, flag.written, _sentences(why, "the shared pool has this many tokens for each slot"), path)
            return
        if path.endswith("cpu_moe_layers") and self.fields.get(path) == "all":
            self.note(NoteKind.DROPPED, flag.written, "the experts of every layer stay in host memory already")
            return
        said = flag.name in ACCUMULATING and path in self.fields
        if understood.wrong and kind is NoteKind.TRANSLATED:
            kind = NoteKind.CORRECTED
        message = _sentences(why, understood.wrong, understood.remark)
        if said:
            self.fields[path] = [*self.fields[path], *value]
            self.note(kind, flag.written, message, path, value)
        else:
            self.put(path, value, kind, flag.written, message)

    def _methods(self, flag: Said, kind: NoteKind, why: str) -> None:
        if flag.name == "--spec-default":
            self.types.append(SPEC_TYPES[Method.NGRAM_MOD])
            at = self.note(kind, flag.written, why, "speculation.method", Method.NGRAM_MOD.value)
            lengths = {"match_length": NGRAM_MOD_MATCH, "draft_length_min": NGRAM_MOD_LENGTH_MIN,
                       "draft_length_max": NGRAM_MOD_LENGTH_MAX}  # fmt: skip
            self.ngram += [(Method.NGRAM_MOD.value, part, length, at) for part, length in lengths.items()]
            return
        words = [word.strip() for word in (flag.value or "").split(",") if word.strip()]
        named = [_OLD_TYPES.get(word, word) for word in words]
        unknown = [word for word in named if word not in METHODS]
        if unknown or not named:
            self.note(
                NoteKind.REFUSED, flag.written, f"{', '.join(unknown) or 'nothing'} is no method of llama-server: it "
                f"would exit; it has {', '.join(METHODS)}",
            )  # fmt: skip
            return
        self.said.add("speculation.method")
        # The engine forgets every method where one of them is `none`.
        self.types = [] if "none" in named else [*self.types, *named]
        renamed = [f"{word} is {name}" for word, name in zip(words, named, strict=True) if word != name]
        if renamed and kind is NoteKind.TRANSLATED:
            kind, why = NoteKind.RENAMED, f"llama-server would exit: today {', '.join(renamed)}"
        values = ["none"] if "none" in named else [METHODS[name].value for name in named]
        self.note(kind, flag.written, why, "speculation.method", values[0] if len(values) == 1 else values)

    def _limit(self, flag: Said, method: str | None, part: str, kind: NoteKind, why: str) -> None:
        path = f"speculation.ngram.{part}"
        try:
            value = understand(path, flag.value or "", self.known).value
        except Unreadable as problem:
            self.note(NoteKind.REFUSED, flag.written, str(problem))
            return
        self.ngram.append((method, part, value, self.note(kind, flag.written, why, path, value)))


def _sentences(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
