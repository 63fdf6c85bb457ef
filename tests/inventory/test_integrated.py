"""Names of graphics that share the host's memory, and of those that do not."""

import pytest

from app.inventory.integrated import is_integrated


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("MTL0", "Apple M3 Max"),
        ("Vulkan0", "Apple M4"),
        ("Vulkan0", "Apple M1"),
        ("Vulkan0", "Intel(R) UHD Graphics 770 (ADL-S GT1)"),
        ("SYCL0", "Intel(R) Iris(R) Xe Graphics"),
        ("SYCL0", "Intel(R) Iris(R) Plus Graphics"),
        ("Vulkan0", "Intel(R) Arc(tm) Graphics (MTL)"),
        ("SYCL0", "Intel(R) Arc(TM) 140V GPU"),
        ("Vulkan0", "Intel(R) Graphics (LNL)"),
        ("Vulkan0", "AMD Radeon Graphics (RADV RENOIR)"),
        ("Vulkan0", "AMD Radeon 780M Graphics (RADV PHOENIX)"),
        ("ROCm0", "AMD Radeon 8060S Graphics"),
        ("ROCm0", "Radeon 8060S"),
        ("Vulkan0", "AMD Radeon(TM) Graphics"),
        ("Vulkan0", "AMD Radeon(TM) 860M Graphics"),
        ("Vulkan1", "AMD Radeon(TM) Vega 8 Graphics"),
        ("GPUOpenCL", "QUALCOMM Adreno(TM)"),
        ("CUDA0", "NVIDIA GB10"),
        ("CUDA0", "Orin"),
    ],
)
def test_integrated(name: str, description: str) -> None:
    assert is_integrated(name, description)


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("MTL0", "AMD Radeon Pro 5500M"),
        ("CUDA0", "NVIDIA GeForce RTX 4090"),
        ("CUDA0", "NVIDIA GB200"),
        ("ROCm0", "AMD Radeon Graphics"),
        ("ROCm0", "AMD Radeon RX 7900 XTX"),
        ("Vulkan0", "AMD Radeon RX 7600M XT (RADV NAVI33)"),
        ("SYCL0", "Intel(R) Arc(TM) A770 Graphics"),
        ("SYCL0", "Intel(R) Iris(R) Xe MAX Graphics"),
        ("Vulkan0", "Intel(R) Arc(tm) B580 Graphics (BMG G21)"),
        ("RPC0", "127.0.0.1:50052"),
    ],
)
def test_not_integrated(name: str, description: str) -> None:
    assert not is_integrated(name, description)
