"""What the engine's dry run says of a launch: a witness, a refusal, or the reason why there is neither. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from app.llama_server.breakdown import Breakdown
from app.llama_server.dry_run_output import DryRunOutput
from app.llama_server.flags import SPEC_TYPES
from app.llama_server.log_lines import Failure, FailureReason, failure_of
from app.speculative.parameters import Method

_READS_TARGET = frozenset(SPEC_TYPES[method] for method in (Method.DFLASH, Method.DSPARK, Method.EAGLE3))
# SIGKILL and SIGTERM are not the engine's own word.
_ENDED_BY_OTHERS = (-9, -15)
_DRAFT_TERMS = frozenset({"draft_weights", "draft_kv_cache", "draft_compute"})


@dataclass(frozen=True, slots=True)
class Witness:
    """What the engine measured. `draft` is a model of its own, `mtp` a second context on the target's weights.

    `mtp.devices[…].model_bytes` repeats the target's weights and takes no memory. `blind` names the terms of which the
    dry run shows nothing or too little, so that the planned bytes count where they are more.
    """

    target: Breakdown
    draft: Breakdown | None = None
    mtp: Breakdown | None = None
    blind: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine does not take this launch: the same call fails in it as in a start."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Unwitnessed:
    """No dry run, or none that says anything; `reason` is a kebab-case name. The plan's own figures stay."""

    reason: str
    message: str


Outcome: TypeAlias = Witness | Refusal | Unwitnessed


def outcome_of(said: DryRunOutput, exit_code: int | None, flags: Sequence[str]) -> Outcome:
    """Judge a finished dry run; `exit_code` is None where it was ended by us."""
    if exit_code in _ENDED_BY_OTHERS:
        return Unwitnessed("killed", f"The dry run was killed by signal {-exit_code}.")
    if (failure := _failure(said, exit_code)) is not None:
        return Refusal(failure)
    if said.target is None:
        told = said.gave_up or "the engine measured nothing before it began to load"
        return Unwitnessed("not-measured", f"The engine does not measure this launch: {told}.")
    if _value(flags, "--fit") == "on" and said.remeasured:
        return Unwitnessed(
            "fit-decides",
            "The profile lets the engine choose the layout (placement.fit), and it would not take the one asked for: "
            "what it will load is known when it loads.",
        )
    own_model = "--spec-draft-model" in flags
    return Witness(
        target=said.target,
        draft=said.extra if own_model else None,
        mtp=None if own_model else said.extra,
        blind=_blind(said, flags),
    )


def _failure(said: DryRunOutput, exit_code: int | None) -> Failure | None:
    """The end that a start would come to. Where measuring failed, the dry run itself was ended by us."""
    if said.target_error is not None:
        return _told(failure_of(1, said.lines), said.target_error)
    if said.extra_error is not None and not said.extra_needs_target:
        return replace(_told(failure_of(1, said.lines), said.extra_error), reason=FailureReason.DRAFT_FAILED)
    return failure_of(exit_code, said.lines) if exit_code else None


def _told(failure: Failure, error: str) -> Failure:
    """With the engine's remark on its measuring, where its other lines name no cause."""
    if failure.reason != FailureReason.EXITED:
        return failure
    return replace(failure, message=f"{failure.message.rstrip('.')}; while measuring: {error}.")


def _blind(said: DryRunOutput, flags: Sequence[str]) -> frozenset[str]:
    if not _READS_TARGET & set((_value(flags, "--spec-type") or "").split(",")):
        return _DRAFT_TERMS if said.extra_error is not None else frozenset()
    # A drafter that reads the target's states reserves its compute buffers once more after it is loaded, twice as
    # large, and the target reserves again at the first request. Without embeddings of its own it is not measured.
    return frozenset({"compute"}) | (_DRAFT_TERMS if said.extra is None else {"draft_compute"})


def _value(flags: Sequence[str], name: str) -> str | None:
    return flags[flags.index(name) + 1] if name in flags else None
