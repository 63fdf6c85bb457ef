"""What chooses recorded requests, in the query of every path that lists or sums them up."""

import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from app.speculative.parameters import Method
from app.telemetry.codes import CATEGORIES, OUTCOMES
from app.telemetry.queries import QueryInvalid, RequestFilters, be_one_of

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def filters(
    profile: Annotated[str | None, Query(description="id of a profile, also of one that is deleted")] = None,
    outcome: Annotated[str | None, Query(description=", ".join(OUTCOMES.numbers))] = None,
    method: Annotated[str | None, Query(description=", ".join(Method))] = None,
    category: Annotated[str | None, Query(description=", ".join(CATEGORIES.numbers))] = None,
    since: Annotated[str | None, Query(description="RFC 3339; the first moment that counts")] = None,
    until: Annotated[str | None, Query(description="RFC 3339; the first moment after those that count")] = None,
) -> RequestFilters:
    """The filters that a query asks for. Raises QueryInvalid."""
    if profile == "":
        raise QueryInvalid("profile", "it is empty; leave it out for all profiles")
    if method is not None:
        be_one_of("method", method, [each.value for each in Method])
    first, end = _time("since", since), _time("until", until)
    if first is not None and end is not None and first >= end:
        raise QueryInvalid("until", f"{until!r} is not after `since`: nothing lies between them")
    return RequestFilters(profile, outcome, method, category, first, end)


def only(*names: str) -> Any:
    """Refuse all but the filters and these: one that is misspelt would answer with everything."""
    return only_these(*RequestFilters.__dataclass_fields__, *names)


def only_these(*known: str) -> Any:
    """Refuse any other query parameter, and one that comes twice: all but the last would be passed over."""

    def check(request: Request) -> None:
        given = [name for name, _ in request.query_params.multi_items()]
        for name in given:
            if name not in known:
                raise QueryInvalid(name, f"unknown parameter; known are {', '.join(known)}")
            if given.count(name) > 1:
                raise QueryInvalid(name, "it comes more than once, and takes one value")

    return Depends(check)


def _time(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    # A plus sign that was not encoded arrives as a space.
    text = re.sub(r" (\d\d:\d\d)$", r"+\1", text)
    try:
        if not _RFC_3339.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text.upper())
    except ValueError as failure:
        raise QueryInvalid(name, f"{text!r} is no RFC 3339 time; write it like 2026-01-31T12:00:00Z") from failure
