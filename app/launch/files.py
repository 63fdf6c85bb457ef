"""The files that a profile names, read. What cannot be used is a finding, never an exception."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app import findings
from app.errors import ModelFileError
from app.findings import Finding
from app.inventory.engine import EngineFacts
from app.inventory.models import ModelFile, read_model, resolve_model_path
from app.inventory.vocabulary import first_different_token
from app.llama_server.extra_args import ADAPTERS, PATH_VALUED, FileEntry, file_entries, joined_entries, read_flags
from app.llama_server.flags import LaunchFiles
from app.placement.case import Adapter
from app.placement.rules.files import unreadable
from app.profiles.profile import LaunchProfile
from app.speculative.parameters import Method


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """What reading gave. `extra` are the profile's extra arguments with every file in them resolved.

    `adapters` are the files among them that change the target.
    """

    target: ModelFile | None
    draft: ModelFile | None
    projector: ModelFile | None
    extra: tuple[str, ...]
    problems: tuple[Finding, ...]
    first_different_token: int | None = None
    adapters: tuple[Adapter, ...] = ()

    def paths(self, profile: LaunchProfile) -> LaunchFiles:
        """Absolute paths; one that cannot be used is as the profile gives it, and the launch then refused."""
        draft = profile.speculation.draft
        return LaunchFiles(
            target=self.target.path if self.target else Path(profile.target.path),
            draft=(self.draft.path if self.draft else Path(draft.path)) if draft else None,
            projector=self.projector.path
            if self.projector
            else (Path(profile.projector) if profile.projector else None),
        )


def read_profile_files(profile: LaunchProfile, engine: EngineFacts, model_dirs: Sequence[Path]) -> ProfileFiles:
    """Read the headers of all files of a profile. Takes time: call it in a thread."""
    problems: list[Finding] = []

    def model(role: str, path: str | None) -> ModelFile | None:
        if path is None:
            return None
        try:
            return read_model(resolve_model_path(path, model_dirs))
        except ModelFileError as failure:
            problems.append(unreadable(role, failure))
            return None

    target = model("target", profile.target.path)
    draft = profile.speculation.draft
    draft_model = model("draft", draft.path if draft else None)
    projector = model("projector", profile.projector)
    extra = _confined(profile, engine, model_dirs, problems)
    extra, adapters = _with_adapters(extra, engine, model_dirs, problems)
    different: int | None = None
    if profile.speculation.method is Method.DRAFT and target is not None and draft_model is not None:
        try:
            different = first_different_token(target, draft_model)
        except ModelFileError as failure:
            problems.append(unreadable("draft", failure))
    return ProfileFiles(target, draft_model, projector, extra, tuple(problems), different, adapters)


def _confined(
    profile: LaunchProfile, engine: EngineFacts, model_dirs: Sequence[Path], problems: list[Finding]
) -> tuple[str, ...]:
    """The extra arguments with every file they name resolved inside the model folders."""
    words = list(profile.extra_args)
    for flag in read_flags(words, engine.flags):
        if flag.name not in PATH_VALUED or flag.at is None:
            continue
        try:
            words[flag.at] = str(resolve_model_path(words[flag.at], model_dirs))
        except ModelFileError as failure:
            problems.append(
                findings.error(
                    "flag-reserved",
                    f"{flag.name} names a file that cannot be used: {failure.message}",
                    expected="a file inside the model folders",
                    observed=words[flag.at],
                    evidence="the profile's extra_args",
                )
            )
    return tuple(words)


def _with_adapters(
    words: Sequence[str], engine: EngineFacts, model_dirs: Sequence[Path], problems: list[Finding]
) -> tuple[tuple[str, ...], tuple[Adapter, ...]]:
    """The same arguments with the files of adapters resolved, and the adapters, read."""
    told, adapters = list(words), list[Adapter]()
    for flag in read_flags(words, engine.flags):
        if flag.name not in ADAPTERS or flag.at is None:
            continue
        try:
            read = list(_read_adapters(flag.name, words[flag.at], model_dirs))
            told[flag.at] = joined_entries(flag.name, [entry for entry, _ in read])
        except (ValueError, ModelFileError) as failure:
            problems.append(_adapter_unreadable(flag.name, words[flag.at], failure))
            continue
        adapters += [Adapter(flag.name, ADAPTERS[flag.name], file) for _, file in read]
    return tuple(told), tuple(adapters)


def _read_adapters(name: str, value: str, model_dirs: Sequence[Path]) -> Iterator[tuple[FileEntry, ModelFile]]:
    for entry in file_entries(name, value):
        path = resolve_model_path(entry.path, model_dirs)
        yield replace(entry, path=str(path)), read_model(path)


def _adapter_unreadable(name: str, value: str, failure: Exception) -> Finding:
    told = failure.message if isinstance(failure, ModelFileError) else str(failure)
    return findings.error(
        "adapter-unreadable",
        f"{name} names a file that cannot be used: {told}",
        expected="GGUF files inside the model folders",
        observed=value,
        evidence="the profile's extra_args; the file's header",
    )
