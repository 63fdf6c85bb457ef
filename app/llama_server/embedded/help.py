"""The output of `--help`, in llama-server's layout: names, placeholder, text from column 40."""

import textwrap

from app.llama_server.embedded.flag import Flag
from app.llama_server.embedded.flag_table import FLAGS_BY_TITLE

_TEXT_COLUMN = 40
_TEXT_WIDTH = 70
_SHORT_WIDTH = 7

_PROGRAM_ENTRIES = (
    ("-h,    --help, --usage", "print usage and exit"),
    ("--version", "show the versions of the embedded engine and exit"),
    ("--list-devices", "print the devices of the engine and exit"),
)


def help_text() -> str:
    """Every flag that is honoured, and only those."""
    blocks: list[str] = []
    for title, flags in FLAGS_BY_TITLE.items():
        entries = [entry(flag) for flag in flags]
        if not blocks:
            entries = [*(_layout(*program) for program in _PROGRAM_ENTRIES), *entries]
        blocks.append(f"----- {title} -----\n\n" + "\n".join(entries))
    return "\n\n\n".join(blocks) + "\n"


def entry(flag: Flag) -> str:
    """One flag: its names and placeholder, then its text."""
    names = [*flag.names, *flag.off]
    first = names[0]
    if len(names) > 1 and not first.startswith("--"):
        head = f"{first},".ljust(_SHORT_WIDTH - 1) + " " + ", ".join(names[1:])
    else:
        head = ", ".join(names)
    return _layout(f"{head} {flag.value}".rstrip(), flag.meaning)


def _layout(head: str, meaning: str) -> str:
    indent = " " * _TEXT_COLUMN
    lines = textwrap.wrap(meaning, _TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)
    if len(head) < _TEXT_COLUMN - 1:  # two blanks at least, as readers of the layout expect
        lines[0] = head.ljust(_TEXT_COLUMN) + lines[0]
        return ("\n" + indent).join(lines)
    return head + "".join(f"\n{indent}{line}" for line in lines)
