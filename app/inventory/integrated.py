"""Which devices have no memory of their own, by what the engine calls them."""

import re

# The engine's list does not tell. Names of makers that only integrated graphics carry.
_INTEGRATED = re.compile(
    r"\bApple (M\d|A\d)"
    # Xe MAX is a card.
    r"|\bIntel\b(?!.*\bXe MAX\b).*\b(HD|UHD|Iris|Xe)\b"
    r"|\bIntel\(R\) (Arc\(TM\) )?Graphics\b"
    r"|\bArc(\(TM\))? 1[34]0[TV]\b"
    r"|\bRadeon\(TM\) Graphics\b"
    r"|\bRadeon(\(TM\))? Vega \d+ Graphics\b"
    r"|\bRadeon(\(TM\))? (\d{3}M|80[456]0S)\b"
    r"|\b(GB10|Orin|Xavier|Thor|Tegra)\b"
    r"|\b(Adreno|Immortalis|Mali)\b",
    re.IGNORECASE,
)
# ROCm calls large cards so as well; Vulkan adds the processor's code name.
_RADEON_OF_PROCESSOR = re.compile(
    r"\bRadeon(\(TM\))? Graphics \(RADV "
    r"(RAVEN|RENOIR|CEZANNE|LUCIENNE|BARCELO|REMBRANDT|MENDOCINO|VANGOGH|RAPHAEL|PHOENIX|GFX1103|GFX115)",
    re.IGNORECASE,
)


def is_integrated(name: str, description: str) -> bool:
    """Whether a device is known to share the memory of its host.

    `name` and `description` are those of the engine's list. Metal devices are integrated but for the graphics cards of
    older machines.
    """
    if name.startswith(("MTL", "Metal")):
        return "AMD" not in description
    return bool(_INTEGRATED.search(description) or _RADEON_OF_PROCESSOR.search(description))
