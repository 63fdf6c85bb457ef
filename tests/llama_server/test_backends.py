"""What a build can drive, from its files."""

from pathlib import Path

import pytest

from app.llama_server.backends import device_backends
from app.llama_server.engine import find_engine


def put(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    for name in names:
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("names", "backends"),
    [
        (["libggml-base.so", "libggml-cpu-haswell.so", "libggml-rpc.so.0.26.0"], set()),
        (["libggml-base.so", "libggml-cpu.so", "libggml-cuda.so", "libggml-vulkan.so.0"], {"cuda", "vulkan"}),
        (["libggml-base.dylib", "libggml-metal.dylib", "libggml-blas.dylib"], {"metal"}),
        (["ggml-base.dll", "ggml-hip.dll"], {"hip"}),
    ],
)
@pytest.mark.parametrize("place", ["bin", "lib"])
def test_libraries_beside_the_program(tmp_path: Path, place: str, names: list[str], backends: set[str]) -> None:
    put(tmp_path / "bin", "llama-server")
    put(tmp_path / place, *names)
    (tmp_path / "link").symlink_to(tmp_path / "bin" / "llama-server")
    assert device_backends(tmp_path / "link") == backends


@pytest.mark.parametrize(
    ("content", "backends"),
    [
        (b"\x7fELF ... ggml_backend_cpu_init ... ggml_backend_rpc_reg", set()),
        (b"\x7fELF ... ggml_backend_cuda_device_get_memory\0ggml_backend_vk_init", {"cuda", "vulkan"}),
    ],
)
def test_a_program_in_one_piece(tmp_path: Path, content: bytes, backends: set[str]) -> None:
    (tmp_path / "llama-server").write_bytes(content)
    assert device_backends(tmp_path / "llama-server") == backends


def test_a_program_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert device_backends(tmp_path / "empty") is None
    assert device_backends(tmp_path / "absent") is None


def test_the_embedded_engine_computes_on_the_processor() -> None:
    assert device_backends(find_engine("embedded").program) == frozenset()


@pytest.mark.engine
def test_the_built_engine_computes_on_the_processor(engine_path: Path) -> None:
    assert device_backends(engine_path) == frozenset()
