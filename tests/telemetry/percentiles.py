"""Percentiles, slowly."""


def by_definition(values: list[float], percent: int) -> float:
    """By the definition: the first value such that enough values are not above it."""
    return next(
        value for value in sorted(values) if sum(other <= value for other in values) * 100 >= percent * len(values)
    )
