"""The check, read from top to bottom: files -> case -> findings -> flags -> report. A start executes what it made."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app import findings
from app.errors import ModelFileError
from app.findings import Finding, blocking
from app.inventory.devices import Device, Machine
from app.inventory.engine import EngineFacts
from app.inventory.models import ModelFile, read_model, resolve_model_path
from app.inventory.vocabulary import first_different_token
from app.launch.report import Checked, Launch, PlacementReport, verdict_of
from app.llama_server.extra_args import PATH_VALUED, read_flags
from app.llama_server.flags import LaunchFiles, ListenAddress, command_line, launch_flags
from app.llama_server.probe import EngineProbe
from app.llama_server.rules import judge_engine
from app.placement.case import LaunchCase
from app.placement.resolve import ResolvedLaunch, resolve
from app.placement.rules import judge
from app.placement.rules.files import unreadable
from app.profiles.profile import LaunchProfile, Serving
from app.speculative.parameters import Method

_SYSTEM_CONFIG = Path("/etc/llama.cpp/config.ini")
# Fields of the interface whose turn has not come; each leaves this list with the work that honours it.
_WITHOUT_EFFECT = (
    "idle_timeout_seconds",
    "autostart",
    "pinned",
    "priority",
    "max_concurrency",
    "queue_limit",
    "queue_timeout_seconds",
    "allow_wrong_logprobs",
    "strip_parameters",
    "set_parameters",
)
_PLACEHOLDER = ListenAddress(socket_path="<socket>")


@dataclass(frozen=True, slots=True)
class _Files:
    """What reading the files of a profile gave; a file that cannot be used is a finding."""

    target: ModelFile | None
    draft: ModelFile | None
    projector: Path | None
    extra: tuple[str, ...]
    problems: tuple[Finding, ...]
    first_different_token: int | None = None


class LaunchCheck:
    """Judges profiles against the engine, the machine and the model folders.

    `claims` answers, for one profile, which other profiles use each of its names; `machine` what a launch with these
    variables would meet on this machine now.
    """

    def __init__(
        self,
        probe: EngineProbe,
        model_dirs: Sequence[Path],
        rpc: Sequence[str],
        claims: Callable[[LaunchProfile], Mapping[str, Sequence[str]]],
        machine: Callable[[Mapping[str, str]], Awaitable[Machine]],
    ) -> None:
        self._probe = probe
        self._model_dirs = tuple(model_dirs)
        self._rpc = tuple(rpc)
        self._claims = claims
        self._machine = machine

    async def check(
        self, profile: LaunchProfile, revision: int, *, machine: Machine | None = None, force: bool = False
    ) -> Checked:
        """The report, and the launch where nothing forbids it (`force` passes judgements).

        Raises EngineError when there is no engine to ask.
        """
        engine = await self._probe.facts()
        files = await asyncio.to_thread(self._read_files, profile, engine)
        if machine is None:
            machine = await self._machine(profile.env)
        case = LaunchCase(
            profile=profile,
            machine=machine,
            # The devices of the machine that is asked about, which may be another one.
            engine=replace(engine, devices=machine.devices),
            target=files.target,
            draft=files.draft,
            unreadable=files.problems,
            claims=self._claims(profile),
            rpc=self._rpc,
            first_different_token=files.first_different_token,
        )
        resolved = resolve(case)
        own_flags = self._flags(case, resolved, files)
        verdicts = [*judge(case), *judge_engine(case, own_flags), *_unknowns(profile)]
        flags = (*own_flags, *files.extra)
        report = _report(case, resolved, flags, verdicts)
        if files.target is None or blocking(verdicts, force=force):
            return Checked(report)
        return Checked(report, Launch(profile, revision, engine, flags, resolved, report))

    def _flags(self, case: LaunchCase, resolved: ResolvedLaunch, files: _Files) -> tuple[str, ...]:
        profile = case.profile
        draft = profile.speculation.draft
        # A path that cannot be used is shown as the profile gives it; the launch is then refused.
        paths = LaunchFiles(
            target=files.target.path if files.target else Path(profile.target.path),
            draft=(files.draft.path if files.draft else Path(draft.path)) if draft else None,
            projector=files.projector or (Path(profile.projector) if profile.projector else None),
        )
        return launch_flags(profile, resolved, paths, rpc=self._rpc)

    def _read_files(self, profile: LaunchProfile, engine: EngineFacts) -> _Files:
        problems: list[Finding] = []

        def model(role: str, path: str | None) -> ModelFile | None:
            if path is None:
                return None
            try:
                return read_model(resolve_model_path(path, self._model_dirs))
            except ModelFileError as failure:
                problems.append(unreadable(role, failure))
                return None

        target = model("target", profile.target.path)
        draft = profile.speculation.draft
        draft_model = model("draft", draft.path if draft else None)
        projector = model("projector", profile.projector)
        extra = self._confine_paths(profile, engine, problems)
        different: int | None = None
        if profile.speculation.method is Method.DRAFT and target is not None and draft_model is not None:
            try:
                different = first_different_token(target, draft_model)
            except ModelFileError as failure:
                problems.append(unreadable("draft", failure))
        return _Files(target, draft_model, projector.path if projector else None, extra, tuple(problems), different)

    def _confine_paths(self, profile: LaunchProfile, engine: EngineFacts, problems: list[Finding]) -> tuple[str, ...]:
        """The extra arguments with every file they name resolved inside the model folders."""
        words = list(profile.extra_args)
        for flag in read_flags(words, engine.flags):
            if flag.name not in PATH_VALUED or flag.at is None:
                continue
            try:
                words[flag.at] = str(resolve_model_path(words[flag.at], self._model_dirs))
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


def _unknowns(profile: LaunchProfile) -> list[Finding]:
    """What this check cannot know, and what this version does not do, is said, never passed over."""
    found = [
        findings.warning(
            "memory-unplanned",
            "This version does not plan memory: whether the launch fits its devices is not known before it is tried.",
            expected="bytes per device",
            observed="not computed",
            evidence="partial",
        )
    ]
    idle = sorted(name for name in _WITHOUT_EFFECT if getattr(profile.serving, name) != getattr(Serving(), name))
    if idle:
        found.append(
            findings.warning(
                "setting-without-effect",
                f"This version stores serving.{', serving.'.join(idle)}, and does not act on it yet.",
                expected="settings that have an effect",
                observed=", ".join(idle),
                evidence="the profile",
            )
        )
    if _SYSTEM_CONFIG.exists():
        found.append(
            findings.warning(
                "system-config",
                f"{_SYSTEM_CONFIG} exists: the engine reads flags from it that this check does not see.",
                expected="no such file",
                observed=str(_SYSTEM_CONFIG),
                evidence="the file system",
            )
        )
    return found


def _report(
    case: LaunchCase, resolved: ResolvedLaunch, flags: tuple[str, ...], verdicts: Sequence[Finding]
) -> PlacementReport:
    split = case.profile.placement.tensor_split
    return PlacementReport(
        verdict=verdict_of(verdicts),
        estimate_source="analytic",
        partial=["memory"],
        devices=[_device(device) for device in case.machine.devices],
        host={"available_bytes": case.machine.host.available_bytes},
        layers=[],
        resolved={
            "tensor_split": list(split) if split is not None else None,
            "context_per_slot": resolved.context_per_slot,
            "context_size": resolved.context_size,
            "draft_device": resolved.draft_device,
            "draft_layers": resolved.draft_gpu_layers,
            "draft_tokens_max": resolved.draft_tokens_max,
            "prompt_cache_bytes": resolved.prompt_cache_bytes,
        },
        residency={"evict": [], "wait": False},
        findings=list(verdicts),
        argv=list(command_line(case.engine, flags, _PLACEHOLDER)),
        env=dict(case.profile.env),
    )


def _device(device: Device) -> dict[str, Any]:
    return {"name": device.name, "total_bytes": device.total_bytes, "free_bytes": device.free_bytes}
