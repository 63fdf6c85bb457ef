"""Room for a launch: whether it fits, and what would have to go for it. Looks, and changes nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from app import findings
from app.errors import LaunchRefused
from app.findings import Finding, Severity
from app.instances.instance import Instance
from app.instances.residency import Decision, Evict, Hold, Launch, Refuse, ResidencyPolicy, Resident, Wait, decide
from app.instances.residents import lacks_only_room, resident_of, short_bytes
from app.launch.check import LaunchCheck
from app.launch.report import Checked, PlacementReport, verdict_of
from app.profiles.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class Room:
    """A decision and the check it stands on; with `Evict` the check is of what will be when those have gone."""

    decision: Decision
    checked: Checked


class RoomFinder:
    """Asks the check, and the residency decision where a profile lacks nothing but memory that others hold."""

    def __init__(self, check: LaunchCheck, lives: Callable[[], Sequence[Instance]], policy: ResidencyPolicy) -> None:
        self._check = check
        self._lives = lives
        self._policy = policy

    async def find(
        self,
        profile: LaunchProfile,
        revision: int,
        *,
        force: bool = False,
        may_evict: bool = True,
        on_the_way: frozenset[int] = frozenset(),
        kept: frozenset[int] = frozenset(),
    ) -> Room:
        """What must happen before the profile can be launched.

        `on_the_way` are instances that have ended and whose memory may not be seen as free yet, earlier lives of the
        profile itself among them; `kept` are idle ones that are to go for somebody else. An eviction is checked by the
        planner before it is proposed: nobody goes in vain.
        """
        checked = await self._check.check(profile, revision, force=force)
        if not lacks_only_room(checked.report):
            if checked.launch is not None:
                return Room(Launch(), checked)
            return Room(Refuse(_first_error(checked.report)), checked)
        residents = [
            resident_of(life, is_kept=life.id in kept)
            for life in self._lives()
            if life.id in on_the_way or (life.profile_id != profile.id and not life.state.is_terminal)
        ]
        going = on_the_way | {resident.instance_id for resident in residents if resident.hold is Hold.ENDING}
        policy = replace(self._policy, may_evict=self._policy.may_evict and may_evict)
        short = short_bytes(checked.report)
        while True:
            decision = _decided(profile.id, short, residents, policy, on_the_way)
            if not isinstance(decision, Evict):
                return self._told(_forced(decision, checked, on_the_way), checked, residents)
            gone = going | frozenset(decision.instance_ids)
            after = await self._check.check(profile, revision, force=force, gone=gone)
            if after.launch is not None and not lacks_only_room(after.report):
                return self._told(decision, after, residents)
            more = _still_short(short, short_bytes(after.report), residents, gone)
            if more == short:
                refused = Refuse(_first_error(after.report))
                return self._told(_forced(refused, checked, on_the_way), checked, residents)
            short = more

    def _told(self, decision: Decision, checked: Checked, residents: Sequence[Resident]) -> Room:
        """The report with what was decided in it."""
        names = {resident.instance_id: resident.profile_id for resident in residents}
        report = checked.report
        if isinstance(decision, Evict):
            evicted = [names[each] for each in decision.instance_ids]
            told = _with(report, _evicting(evicted), {"evict": evicted, "wait": False})
        elif isinstance(decision, Wait):
            told = _with(report, _waiting([names[each] for each in decision.instance_ids]), {"evict": [], "wait": True})
        elif isinstance(decision, Refuse) and residents and decision.finding not in report.findings:
            told = _with(report, decision.finding, {"evict": [], "wait": False})
        else:
            told = report
        return Room(decision, Checked(told, replace(checked.launch, report=told) if checked.launch else None))


def _decided(
    wanted: str,
    short: Mapping[str, int],
    residents: Sequence[Resident],
    policy: ResidencyPolicy,
    on_the_way: frozenset[int],
) -> Decision:
    """The decision; with memory on its way nobody goes who might go in vain, should that have come back already."""
    decision = decide(wanted, short, residents, policy)
    if isinstance(decision, Evict) and on_the_way:
        remaining = [resident for resident in residents if resident.instance_id not in on_the_way]
        if isinstance(decide(wanted, short, remaining, policy), Refuse):
            return Wait(tuple(resident.instance_id for resident in residents if resident.instance_id in on_the_way))
    return decision


def _forced(decision: Decision, checked: Checked, on_the_way: frozenset[int]) -> Decision:
    """There is a launch for one that lacks room only where it is forced: it waits for what comes back by itself."""
    if checked.launch is None or (isinstance(decision, Wait) and on_the_way.issuperset(decision.instance_ids)):
        return decision
    return Launch()


def refusal(profile_id: str, report: PlacementReport) -> LaunchRefused:
    """The error of a launch that is refused, with its report."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    return LaunchRefused(
        f"profile {profile_id!r} is not launched: " + " ".join(f"[{each.rule}] {each.message}" for each in errors),
        report,
    )


def _with(report: PlacementReport, finding: Finding, residency: dict[str, object]) -> PlacementReport:
    verdicts = [*report.findings, finding]
    return replace(report, findings=verdicts, verdict=verdict_of(verdicts), residency=residency)


def _still_short(
    short: Mapping[str, int], after: Mapping[str, int], residents: Sequence[Resident], gone: frozenset[int]
) -> dict[str, int]:
    """What is lacking, where a plan with those gone still lacks some: it divides the model differently then."""
    return {
        **short,
        **{
            device: lack + sum(each.held_bytes.get(device, 0) for each in residents if each.instance_id in gone)
            for device, lack in after.items()
        },
    }


def _first_error(report: PlacementReport) -> Finding:
    return next(finding for finding in report.findings if finding.severity is Severity.ERROR)


def _evicting(profile_ids: Sequence[str]) -> Finding:
    named = ", ".join(profile_ids)
    return findings.info(
        "residency-evicts",
        f"It fits when what is idle now ends first, and a start of this profile sees to that: {named}.",
        expected="room beside all that runs, or idle instances that hold enough",
        observed=f"to be ended: {named}",
        evidence="the plan, the devices as seen now, and the instances of this service",
    )


def _waiting(profile_ids: Sequence[str]) -> Finding:
    named = ", ".join(profile_ids)
    return findings.info(
        "residency-waits",
        f"It would fit without {named}, which cannot end at this moment: a request waits for that.",
        expected="room beside all that runs, or idle instances that hold enough",
        observed=f"busy, loading, or ending: {named}",
        evidence="the plan, the devices as seen now, and the instances of this service",
    )
