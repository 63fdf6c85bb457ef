"""The settings as text, made from their definition: help and guide cannot tell another story."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from app.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingText:
    """One setting as its variable, what it says, and its default (empty where it has none)."""

    variable: str
    description: str
    default: str


def settings_texts() -> Sequence[SettingText]:
    """Every setting in the order of its definition."""
    prefix = Settings.model_config.get("env_prefix", "")
    return [
        SettingText(f"{prefix}{name}".upper(), field.description or "", _default(field))
        for name, field in Settings.model_fields.items()
    ]


def settings_help() -> str:
    """All settings as lines for a help text."""
    lines = []
    for setting in settings_texts():
        default = f" [{setting.default}]" if setting.default else ""
        lines.append(f"  {setting.variable}{default}\n      {setting.description}")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, Path):
        home = Path.home()
        return f"~/{value.relative_to(home)}" if value.is_relative_to(home) else str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
