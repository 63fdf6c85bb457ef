"""Which profile a name means. Ids win over aliases; of two aliases, the older profile's."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from app.profiles.stored import StoredProfile


def names_of(profiles: Iterable[StoredProfile]) -> Mapping[str, str]:
    """Every id and alias, each with the id of the one profile that answers to it."""
    names: dict[str, str] = {}
    eldest_first = sorted(profiles, key=_age)
    for stored in eldest_first:
        for alias in stored.profile.serving.aliases:
            names.setdefault(alias, stored.profile.id)
    names.update((stored.profile.id, stored.profile.id) for stored in eldest_first)
    return MappingProxyType(names)


def claims_of(profiles: Iterable[StoredProfile], name: str) -> list[str]:
    """The ids of all profiles that claim a name, the one that gets it first."""
    claiming = sorted((stored for stored in profiles if name in stored.profile.names), key=_age)
    return sorted((stored.profile.id for stored in claiming), key=lambda profile_id: profile_id != name)


def _age(stored: StoredProfile) -> tuple[float, str]:
    return stored.created_at.timestamp(), stored.profile.id
