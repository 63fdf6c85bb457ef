"""Changes of a profile that findings at run time offer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.findings import Fix
from app.profiles.profile import LaunchProfile, document_of, merge_patch

WITHOUT_SPECULATION: Final[Mapping[str, Any]] = {"speculation": {"method": "none", "draft": None, "also": []}}


def changing(profile: LaunchProfile, fixes: Sequence[Fix]) -> list[Fix]:
    """Those that change this profile, and those that are advice only: a patch that says what is said already is none.

    A running instance did not get what its profile asks for, so the plain remedy is often in the profile already.
    """
    document = document_of(profile)
    changed = []
    for fix in fixes:
        # `null` removes a member, which then has its default: compare what a profile with the patch would read.
        patched = LaunchProfile.model_validate(merge_patch(document, fix.patch))
        if not fix.patch or document_of(patched) != document:
            changed.append(fix)
    return changed
