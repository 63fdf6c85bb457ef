"""Which kinds of devices a build of the engine can drive at all. It does not say so itself where it finds none."""

import mmap
import re
from pathlib import Path

# Builds that load their backends: one library for each, beside the program or in `lib` next to its folder.
_LIBRARY = re.compile(r"(?:lib)?ggml-([a-z]+)[a-z0-9_-]*\.(?:so|dylib|dll)")
_DRIVES_NO_DEVICE = frozenset({"base", "cpu", "blas", "rpc", "zendnn"})
# Builds in one piece: functions of a backend name themselves in its messages.
_FUNCTION = re.compile(rb"ggml_backend_(cuda|vk|metal|sycl|opencl|cann)_")
_NAMES = {"vk": "vulkan"}


def device_backends(program: Path) -> frozenset[str] | None:
    """The backends for devices in a build, such as `cuda`; empty for one that only computes on the processor.

    `program` is the server, or the extension module of the embedded engine. A HIP build in one piece says `cuda`. None
    where the program cannot be read.
    """
    real = program.resolve()
    libraries = {
        match[1]
        for folder in (real.parent, real.parent.parent / "lib")
        if folder.is_dir()
        for entry in folder.iterdir()
        if (match := _LIBRARY.match(entry.name))
    }
    if libraries:
        return frozenset(libraries - _DRIVES_NO_DEVICE)
    try:
        with real.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = {match[1].decode() for match in _FUNCTION.finditer(content)}
    except (OSError, ValueError):
        return None
    return frozenset(_NAMES.get(name, name) for name in found)
