"""Lives as a residency decision sees them, and what a report says is lacking."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from app.findings import Finding, Severity
from app.instances.instance import Instance
from app.instances.residency import Hold, Resident
from app.instances.state import InstanceState
from app.launch.circumstances import OtherLaunches
from app.launch.report import PlacementReport, promised_host_bytes, required_memory
from app.placement.budgets import HOST_NAME

# Errors that pass when others have given their memory back.
_OF_ROOM: Final = frozenset({"device-memory", "host-memory", "draft-on-host", "rpc-held"})
# An RPC server speaks with one client at a time: it counts as a resource of which there is one.
_RPC_SERVERS: Final = "RPC servers"
_DRAFT_TERMS: Final = ("draft_weights", "draft_kv_cache", "draft_compute")


def resident_of(life: Instance, *, is_kept: bool = False) -> Resident:
    """An instance that has not ended, or whose memory is still on its way back; one that is kept counts as busy."""
    held = dict(required_memory(life.launch.report))
    hold = _hold(life)
    if is_kept and hold is Hold.FREE:
        hold = Hold.BUSY
    if hold is Hold.LOADING:
        # It is reserved, and where a driver does not tell whose memory it is, what shows already is taken beside that.
        # Nobody is refused for that: when it has loaded its memory counts once.
        held = {name: 2 * used_bytes for name, used_bytes in held.items()}
    if "--rpc" in life.launch.flags:
        held[_RPC_SERVERS] = 1
    return Resident(
        instance_id=life.id,
        profile_id=life.profile_id,
        held_bytes=held,
        hold=hold,
        idle_seconds=life.holds.idle_seconds,
        reload_seconds=life.story.load_seconds or 0.0,
        priority=life.serving.priority,
    )


def lacks_only_room(report: PlacementReport) -> bool:
    """Whether a report refuses, and for nothing but memory that others hold."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    return bool(errors) and all(is_of_room(finding) for finding in errors)


def is_of_room(finding: Finding) -> bool:
    """Whether an error may pass when others have gone; one that is not overridable is none that memory would help."""
    return finding.severity is Severity.ERROR and finding.rule in _OF_ROOM and finding.overridable


def short_bytes(report: PlacementReport) -> dict[str, int]:
    """What each device and the host lack for the plan of a report."""
    short = {
        str(device["name"]): -int(device["headroom_bytes"])
        for device in report.devices
        if device["required_bytes"] and device["headroom_bytes"] < 0
    }
    rules = {finding.rule for finding in report.findings if is_of_room(finding)}
    host = report.host
    if "host-memory" in rules and host["available_bytes"] is not None:
        resident_bytes = int(host["required_bytes"]) - int(host["mapped_bytes"])
        short[HOST_NAME] = resident_bytes + int(host["reserved_bytes"]) - int(host["available_bytes"])
    if "draft-on-host" in rules:
        device = str(report.resolved["output_device"])
        short[device] = short.get(device, 0) + sum(int(host["terms"].get(term, 0)) for term in _DRAFT_TERMS)
    if "rpc-held" in rules:
        short[_RPC_SERVERS] = 1
    return short


def others_of(lives: Iterable[Instance], profile_id: str, gone: frozenset[int] = frozenset()) -> OtherLaunches:
    """What instances do to the memory that a launch of this profile would meet, as if those in `gone` had ended."""
    reserved: Counter[str] = Counter()
    returning: Counter[str] = Counter()
    loading: dict[int, Mapping[str, int]] = {}
    holders = set()
    for life in lives:
        if life.state.is_terminal and life.id not in gone:
            continue
        returns = life.profile_id == profile_id or life.id in gone
        if "--rpc" in life.launch.flags and not life.state.is_terminal:
            # Who goes for this launch holds them until then: they are not to be asked, but nothing is in the way.
            holders.add(profile_id if life.id in gone else life.profile_id)
        is_loading = life.state in (InstanceState.STARTING, InstanceState.LOADING)
        # Caches on the host fill while it serves: until then nobody sees them, and nobody gets them back.
        caches_bytes = promised_host_bytes(life.launch.report)
        required = required_memory(life.launch.report)
        if is_loading and not returns and life.story.pid is not None:
            loading[life.story.pid] = required
        for name, used_bytes in required.items():
            # An RPC server speaks with one client: while one of ours holds it, it shows what was free before.
            is_unseen = is_loading or name.startswith("RPC")
            if returns and not is_unseen:
                returning[name] += used_bytes - (caches_bytes if name == HOST_NAME else 0)
            elif is_unseen and not returns:
                reserved[name] += used_bytes
        if not is_loading and not returns:
            reserved[HOST_NAME] += caches_bytes
    return OtherLaunches(
        dict(reserved),
        dict(returning),
        holds_rpc=bool(holders - {profile_id}),
        own_rpc=profile_id in holders,
        loading=loading,
    )


def _hold(life: Instance) -> Hold:
    if life.is_ending or life.state.is_terminal:
        return Hold.ENDING
    if life.serving.pinned:
        return Hold.PINNED
    if life.state is not InstanceState.READY:
        return Hold.LOADING
    return Hold.BUSY if life.has_leases else Hold.FREE
