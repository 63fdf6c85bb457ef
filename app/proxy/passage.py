"""/upstream/{profile}/{path}: any path of one profile's engine. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from app.errors import RequestError
from app.proxy.endpoints import UPSTREAM_PREFIX

# Names with slashes that are not encoded are looked for up to so many of them.
_MOST_SLASHES = 8


class UpgradeRefused(RequestError):
    """The client asks for another protocol, a WebSocket as a rule."""

    code = "upgrade-refused"


@dataclass(frozen=True, slots=True)
class Passage:
    """Whose engine is meant, and the path there, still encoded. `name` is an id or an alias, known or not."""

    name: str
    path: bytes


def passage_of(raw_path: bytes, names: Collection[str]) -> Passage:
    """The passage of a path that begins with /upstream/.

    A slash within a name may be encoded, as clients do, or not, as proxies leave it: then the longest name that is
    known counts. An empty path is that of the engine's page.
    """
    segments = raw_path[len(UPSTREAM_PREFIX) :].split(b"/", _MOST_SLASHES + 1)
    for count in range(min(len(segments), _MOST_SLASHES + 1), 0, -1):
        name = _text(b"/".join(segments[:count]))
        if name in names or count == 1:
            return Passage(name, b"/" + b"/".join(segments[count:]))
    raise AssertionError("a split has a first part")


def page_redirect(raw_path: bytes) -> bytes | None:
    """Where the page of an engine is that was asked for without its last slash: its links are relative to that."""
    name = raw_path[len(UPSTREAM_PREFIX) :]
    return b"./" + name + b"/" if name and b"/" not in name else None


def _text(encoded: bytes) -> str:
    return unquote_to_bytes(encoded).decode("utf-8", "replace")
