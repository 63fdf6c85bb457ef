"""Which methods of speculation the files of a case allow, with modest limits for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.findings import Finding, Severity
from app.inventory.models import ModelFile, ModelKind
from app.placement.case import LaunchCase
from app.placement.drafting import trained_draft_tokens
from app.placement.rules import judge
from app.placement.rules.files import METHOD_FOR
from app.placement.trials import Patch, case_with
from app.profiles.profile import document_of, merge_patch, parse_profile
from app.speculative.parameters import Method

# Long drafts look better in tables than in use; a tuning run finds what is right.
_DRAFT_TOKENS: Final[Mapping[Method, int]] = {
    Method.DRAFT: 4,
    Method.DFLASH: 5,
    Method.DSPARK: 5,
    Method.EAGLE3: 3,
    Method.MTP: 3,
}
# It works, and is slower than no draft.
_POINTLESS: Final = frozenset({"draft-is-target"})
_OFFLOADED_TOKENS_MAX: Final = 7
_OFFLOADED_PROBABILITY_MIN: Final = 0.6


@dataclass(frozen=True, slots=True)
class UsableMethod:
    """One method: its drafter's limits as a patch, and whether that is a model of its own."""

    method: Method
    speculation: Mapping[str, Any]

    @property
    def has_draft_model(self) -> bool:
        """Whether a second file is loaded."""
        return self.speculation.get("draft") is not None

    @property
    def text(self) -> str:
        """The method as a reason names it."""
        if self.method is Method.NONE:
            return "no speculation"
        return f"{self.method} with a draft model" if self.has_draft_model else f"{self.method}, no second file"

    def patch(self, draft_device: str | None, *, offloaded: bool = False) -> Patch:
        """The change that selects it, the whole drafter on one device (None: as the resolver puts it)."""
        speculation = dict(self.speculation)
        if self.has_draft_model:
            speculation["draft"] = {**speculation["draft"], "device": draft_device, "gpu_layers": "all"}
            if offloaded:
                speculation["draft_tokens_max"] = min(speculation["draft_tokens_max"], _OFFLOADED_TOKENS_MAX)
                if speculation.pop("takes_threshold") and not speculation["draft_probability_min"]:
                    speculation["draft_probability_min"] = _OFFLOADED_PROBABILITY_MIN
        speculation.pop("takes_threshold", None)
        return {"speculation": speculation}


def usable_methods(case: LaunchCase) -> tuple[list[UsableMethod], list[Finding]]:
    """The methods, the draft model's first and none at all last; and why a drafter that is asked for is not among them.

    A method is tried on the rules that know no bytes; what they say of the profile without speculation does not count.
    """
    plain = UsableMethod(Method.NONE, {"method": "none", "draft": None})
    known = {found.rule for found in _doubts(case, _patch_of(case, plain))}
    of_the_files = _of_the_files(case)
    usable: list[UsableMethod] = []
    left_out: list[Finding] = []
    for candidate in of_the_files:
        doubts = [found for found in _doubts(case, _patch_of(case, candidate)) if found.rule not in known]
        if not doubts:
            usable.append(candidate)
        elif _is_asked_for(case, candidate):
            left_out += doubts
    wish = None if any(_is_asked_for(case, each) for each in of_the_files) else _wish_of(case)
    if wish is not None:
        left_out += [found for found in _doubts(case, wish) if found.rule not in known]
    return [*usable, plain], left_out


def _is_asked_for(case: LaunchCase, method: UsableMethod) -> bool:
    said = case.profile.speculation
    return method.has_draft_model if said.draft is not None else method.method is said.method


def _wish_of(case: LaunchCase) -> Patch | None:
    """A drafter that is asked for, of which the files have none; None where they need none."""
    said = case.profile.speculation
    if said.draft is not None and not said.method.takes_draft_model:
        return {"speculation": {"method": Method.DRAFT.value}}
    return {} if said.method.takes_draft_model else None


def _of_the_files(case: LaunchCase) -> list[UsableMethod]:
    found = []
    said, target = case.profile.speculation, case.target
    if case.draft is not None and said.draft is not None and (kind := METHOD_FOR.get(case.draft.kind)) is not None:
        found.append(_with_limits(case, kind, {"path": said.draft.path}, case.draft))
    if target is not None and target.nextn_layers and target.has_nextn_tensors:
        found.append(_with_limits(case, Method.MTP, None, None))
    return found


def _with_limits(
    case: LaunchCase, method: Method, draft: Mapping[str, Any] | None, model: ModelFile | None
) -> UsableMethod:
    """The profile's own limits where they are for this method, else modest ones within the trained block."""
    said = case.profile.speculation
    is_own = said.method is method and (said.draft is not None) is (draft is not None)
    tokens = said.draft_tokens_max if is_own and said.draft_tokens_max else _DRAFT_TOKENS[method]
    trained = trained_draft_tokens(method, case.target, model)
    takes = model is None or model.kind is not ModelKind.DSPARK or model.has_confidence_head
    probability = said.draft_probability_min if is_own and takes else 0.0
    limits = {
        "method": method.value,
        "draft": draft,
        "draft_tokens_max": tokens if trained is None else max(1, min(tokens, trained)),
        "draft_tokens_min": min(said.draft_tokens_min, tokens) if is_own else 0,
        "draft_probability_min": probability,
    }
    return UsableMethod(method, limits | ({"takes_threshold": takes} if draft is not None else {}))


def _patch_of(case: LaunchCase, method: UsableMethod) -> Patch:
    names = case.machine.device_names
    return method.patch(names[0] if names else "none")


def _doubts(case: LaunchCase, patch: Patch) -> list[Finding]:
    """What the rules refuse, or find pointless, all of it on the first device, or on the host."""
    names = case.machine.device_names
    placement = {"devices": [names[0] if names else "none"], "split_mode": "none", "main_gpu": 0, "tensor_split": None}
    document = merge_patch(document_of(case.profile), patch)
    profile = parse_profile(merge_patch(document, {"placement": {**placement, "gpu_layers": "all"}}))
    found = judge(case_with(case, profile))
    return [one for one in found if one.severity is Severity.ERROR or one.rule in _POINTLESS]
