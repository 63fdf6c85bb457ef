"""Which profile answers to the model that a request names."""

from collections.abc import Mapping

from app.errors import AccessDenied, ModelNotNamed, ModelUnknown
from app.proxy.caller import ANYONE, Caller

_MOST_NAMES = 50


def choose_profile(model: str | None, names: Mapping[str, str], caller: Caller = ANYONE) -> str:
    """The id of the profile for `model`; `names` maps ids and aliases to ids.

    Without a model it is the only profile that the caller may use. Raises ModelNotNamed, ModelUnknown, and
    AccessDenied (403) for the profiles of others.
    """
    permitted = permitted_names(names, caller)
    if model:
        profile_id = names.get(model)
        if profile_id is None:
            raise ModelUnknown(
                f"no profile answers to {_quoted(model)}; {_known(permitted)}",
                recorded="no profile answers to that name",
            )
        if not caller.may_use(profile_id):
            theirs = ", ".join(sorted(caller.profiles or ()))
            raise AccessDenied(f"the key {caller.name!r} may use {theirs} only, not {profile_id!r}", status=403)
        return profile_id
    names = permitted
    profile_ids = set(names.values())
    if len(profile_ids) == 1:
        return profile_ids.pop()
    message = 'name a profile in "model" or in ?model='
    raise ModelNotNamed(f"{message}; {_known(names)}", recorded=message)


def permitted_names(names: Mapping[str, str], caller: Caller) -> Mapping[str, str]:
    """Those of the profiles that the caller may use."""
    if caller.profiles is None:
        return names
    return {name: profile_id for name, profile_id in names.items() if profile_id in caller.profiles}


def route_reason(model: str | None, profile_id: str) -> str:
    """Why that profile was chosen: `id`, `alias`, or `only` where no model was named."""
    if not model:
        return "only"
    return "id" if model == profile_id else "alias"


def _known(names: Mapping[str, str]) -> str:
    if not names:
        return "there are no profiles yet: create one with POST /profiles"
    shown = sorted(names)[:_MOST_NAMES]
    more = len(names) - len(shown)
    return "there are: " + ", ".join(shown) + (f" and {more} more" if more else "")


def _quoted(model: str) -> str:
    return f'"{model[:256]}"'
