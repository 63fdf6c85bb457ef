"""Lines of verbosity 4 that are not worth keeping. Pure."""

_STAMP_CHARACTERS = 24


def lists_cached_prompts(line: str) -> bool:
    """Whether it is an entry of the list of cached prompts, which tells their lengths.

    The engine prints that list twice for a request, one line for each prompt in its cache: hundreds where prompts are
    short. Kept, they would drive everything else out of the log.
    """
    return ":    - prompt " in line and " I srv " in line[:_STAMP_CHARACTERS]
