"""The files that a profile names, read. What cannot be used is a finding, never an exception."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app import findings
from app.errors import ModelFileError
from app.findings import Finding
from app.inventory.engine import EngineFacts
from app.inventory.models import ModelFile, read_model, resolve_model_path
from app.inventory.vocabulary import first_different_token
from app.llama_server.extra_args import PATH_VALUED, read_flags
from app.llama_server.flags import LaunchFiles
from app.placement.rules.files import unreadable
from app.profiles.profile import LaunchProfile
from app.speculative.parameters import Method


@dataclass(frozen=True, slots=True)
class ProfileFiles:
    """What reading gave. `extra` are the profile's extra arguments with every file in them resolved."""

    target: ModelFile | None
    draft: ModelFile | None
    projector: ModelFile | None
    extra: tuple[str, ...]
    problems: tuple[Finding, ...]
    first_different_token: int | None = None

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
    different: int | None = None
    if profile.speculation.method is Method.DRAFT and target is not None and draft_model is not None:
        try:
            different = first_different_token(target, draft_model)
        except ModelFileError as failure:
            problems.append(unreadable("draft", failure))
    return ProfileFiles(target, draft_model, projector, extra, tuple(problems), different)


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
