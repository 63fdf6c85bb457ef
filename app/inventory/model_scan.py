"""The GGUF files in the model folders, each model once, with its shape."""

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.errors import ModelFileError, ModelFileMissing, ModelFileOutside
from app.inventory.gguf_cursor import shown
from app.inventory.model_paths import gguf_files, part_paths
from app.inventory.models import ModelFile, read_model

_ENTRIES_MAX: Final = 20_000
_MODELS_MAX: Final = 2_000

# Of every file of a model: path, bytes, and when content and rights last changed.
_Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What is worth showing of a ModelFile, without its header, which is thousands of times larger."""

    kind: str
    architecture: str
    name: str | None
    size_bytes: int
    parts: int
    block_count: int
    nextn_layers: int
    has_nextn_tensors: bool
    expert_count: int
    expert_used_count: int
    context_length_trained: int | None
    embedding_length: int | None
    vocabulary_size: int | None
    tokenizer_model: str | None
    quantisation: str | None
    largest_type: str | None
    block_size: int | None
    has_own_embeddings: bool
    has_own_head: bool
    has_chat_template: bool
    has_loadable_names: bool

    @classmethod
    def of(cls, model: ModelFile) -> "ModelShape":
        """The shape of a model that was read."""
        special = {"kind": model.kind.value, "parts": len(model.parts)}
        return cls(**{name: special.get(name, getattr(model, name)) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class FoundModel:
    """One model in the folders: its shape, or why it cannot be used.

    `path` is what a profile writes to mean it: relative to its folder, or absolute where another folder has the same.
    """

    path: str
    folder: Path
    shape: ModelShape | None
    error: str | None = None


class ModelScan:
    """Looks through the model folders; a model is read again only when one of its files has changed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._one_at_a_time = threading.Lock()
        self._known: dict[_Stamp, ModelShape | str] = {}

    def scan(self) -> Sequence[FoundModel]:
        """Every model, by folder and name. Reads headers, so not for the event loop; bounded in files and entries."""
        with self._one_at_a_time:
            seen: dict[_Stamp, ModelShape | str] = {}
            found: dict[str, FoundModel] = {}
            for folder, path in self._files():
                real = os.path.realpath(path)
                if real in found:
                    continue
                stamp = _stamp(path)
                answer = seen[stamp] = self._known.get(stamp) or self._read(path)
                name = self._name(folder, path)
                if isinstance(answer, ModelShape):
                    found[real] = FoundModel(name, folder, answer)
                else:
                    found[real] = FoundModel(name, folder, None, answer)
                if len(found) == _MODELS_MAX:
                    break
            self._known = seen
            return sorted(found.values(), key=lambda model: (self._folders.index(model.folder), model.path))

    def _files(self) -> Iterator[tuple[Path, Path]]:
        """Each folder with the first file of each model in it, or of a set without its first file another one."""
        for folder in self._folders:
            sets: set[Path] = set()
            for path in gguf_files(folder, _ENTRIES_MAX):
                first = _first_part(path)
                if first not in sets:
                    sets.add(first)
                    yield folder, first if first.exists() else path

    def _read(self, path: Path) -> ModelShape | str:
        try:
            self._demand_inside(path)
            return ModelShape.of(read_model(path))
        except ModelFileError as failure:
            return failure.message

    def _demand_inside(self, path: Path) -> None:
        for part in part_paths(path):
            real = Path(os.path.realpath(part))
            if not any(real.is_relative_to(os.path.realpath(folder)) for folder in self._folders):
                raise ModelFileOutside(
                    f"{shown(part)} is a link that leads out of the model folders: put the file itself there, "
                    "or add its folder to PACELINE_MODEL_DIRS"
                )
        if not path.exists():
            raise ModelFileMissing(f"{shown(path)} is a link to nothing: remove it, or put the file where it points")

    def _name(self, folder: Path, path: Path) -> str:
        relative = path.relative_to(folder)
        meant = next((other / relative for other in self._folders if (other / relative).exists()), path)
        return shown(relative if meant == path else path)


def _first_part(path: Path) -> Path:
    try:
        return part_paths(path)[0]
    except ModelFileError:
        # Its name contradicts itself, which reading it tells.
        return path


def _stamp(path: Path) -> _Stamp:
    try:
        parts = part_paths(path)
    except ModelFileError:
        parts = (path,)
    stamps = []
    for part in parts:
        try:
            status = part.stat()
        except OSError:
            stamps.append((str(part), -1, 0, 0))
        else:
            stamps.append((str(part), status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(stamps)
