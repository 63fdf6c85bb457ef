"""YAML as plain JSON data with line numbers.

Scalars follow the core schema of YAML 1.2, so `on`, `off`, `yes`, `no`, `12:30` and dates stay the strings they look
like, and `010` is ten. Nothing but JSON's types comes out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.errors import ProfileError

# Anchors are welcome, but a few of them can stand for billions of values.
_VALUES_MOST = 100_000

_TAG = "tag:yaml.org,2002:"
_CORE_SCHEMA = (
    ("null", r"(~|null|Null|NULL|)"),
    ("bool", r"(true|True|TRUE|false|False|FALSE)"),
    ("int", r"([-+]?[0-9]+|0x[0-9a-fA-F]+)"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
    ("merge", r"<<"),
)


class ProfileFileUnreadable(ProfileError):
    """A profile file is not YAML that can be used; `line` counts from 1."""

    code = "profile-file-unreadable"

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message, line=line)
        self.line = line


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document of a stream: its data, and its nodes for telling lines."""

    data: Any
    root: Node

    @property
    def line(self) -> int:
        """Where it begins, counted from 1."""
        return int(self.root.start_mark.line) + 1

    def line_of(self, field: str) -> int:
        """The line of a dotted field such as `serving.aliases.0`, or of the nearest part of it that is there."""
        node, line = self.root, self.line
        for part in field.split("."):
            found = _child(node, part)
            if found is None:
                break
            marked, node = found
            line = int(marked.start_mark.line) + 1
        return line


class _Loader(yaml.SafeLoader):
    # The key None means "whatever the first character is".
    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {  # type: ignore[misc]
        None: [(_TAG + name, re.compile(f"{pattern}$")) for name, pattern in _CORE_SCHEMA]
    }
    yaml_constructors: ClassVar[dict[Any, Any]] = {
        _TAG + "null": SafeConstructor.construct_yaml_null,
        _TAG + "bool": SafeConstructor.construct_yaml_bool,
        _TAG + "int": lambda self, node: _integer(self.construct_scalar(node)),
        _TAG + "float": lambda self, node: float(self.construct_scalar(node)),
        _TAG + "str": SafeConstructor.construct_yaml_str,
        _TAG + "seq": SafeConstructor.construct_yaml_seq,
        _TAG + "map": SafeConstructor.construct_yaml_map,
        None: SafeConstructor.construct_undefined,
    }


def read_documents(text: str) -> Sequence[YamlDocument]:
    """Every document of a YAML stream that is not empty. Raises ProfileFileUnreadable with the line."""
    documents: list[YamlDocument] = []
    line = 1
    try:
        loader = _Loader(text)
        try:
            while (node := _next_node(loader)) is not None:
                line = int(node.start_mark.line) + 1
                _measure(node, {})
                data = loader.construct_document(node)
                if data is not None:
                    documents.append(YamlDocument(data, node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        said = ", ".join(str(part) for part in (failure.context, failure.problem) if part)
        raise ProfileFileUnreadable(f"not valid YAML: {said}", mark.line + 1 if mark else line) from failure
    except yaml.reader.ReaderError as failure:
        line = text.count("\n", 0, failure.position) + 1
        raise ProfileFileUnreadable(f"not valid YAML: {failure.reason}", line) from failure
    except ValueError as failure:
        raise ProfileFileUnreadable(f"not valid YAML: {failure}", line) from failure
    except RecursionError as failure:
        raise ProfileFileUnreadable("nested too deeply", line) from failure
    return documents


def _next_node(loader: _Loader) -> Node | None:
    return loader.get_node() if loader.check_node() else None


def _integer(text: str) -> int:
    return int(text, 16 if text.startswith("0x") else 10)


def _measure(node: Node, sizes: dict[Node, int]) -> int:
    """How many values the node stands for once its aliases are written out; refuses too many, circles and repeats."""
    if node in sizes:
        if sizes[node] == 0:
            raise ProfileFileUnreadable("an alias that contains itself", int(node.start_mark.line) + 1)
        return sizes[node]
    sizes[node] = 0
    size = 1
    if isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value in seen:
                raise ProfileFileUnreadable(f'"{key.value}" is given twice', int(key.start_mark.line) + 1)
            seen.add(str(key.value))
            size += _measure(key, sizes) + _measure(value, sizes)
    elif isinstance(node, SequenceNode):
        size += sum(_measure(value, sizes) for value in node.value)
    if size > _VALUES_MOST:
        raise ProfileFileUnreadable(f"stands for over {_VALUES_MOST} values", int(node.start_mark.line) + 1)
    sizes[node] = size
    return size


def _child(node: Node, part: str) -> tuple[Node, Node] | None:
    """The node to point at, and the node to go on from."""
    if isinstance(node, MappingNode):
        # What merge keys brought in stands first, so the last of a name is the one that counts.
        for key, value in reversed(node.value):
            if key.value == part:
                return key, value
    if isinstance(node, SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        return node.value[int(part)], node.value[int(part)]
    return None
