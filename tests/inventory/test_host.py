"""The host from the files of a kernel, all of them under a folder."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.inventory.devices import Host
from app.inventory.host import host_memory_now, host_now
from app.inventory.kernel_files import number_list

GIB = 1 << 30
MEMINFO = (
    "MemTotal:       131072000 kB\nMemFree:         1000000 kB\nMemAvailable:   120000000 kB\nHugePages_Free:  0\n"
)
CPU = "sys/devices/system/cpu"
# Two cores of two threads each.
CORES = {f"{CPU}/cpu{n}/topology/core_cpus_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)}
BARE = {
    "proc/meminfo": MEMINFO, "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3\n", **CORES,
    "sys/devices/system/node/node0/cpulist": "0-1\n", "sys/devices/system/node/node1/cpulist": "2-3\n",
    "sys/devices/system/node/online": "0-1\n",
}  # fmt: skip
TOTAL, AVAILABLE = 131072000 << 10, 120000000 << 10

Lay = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Write files of a kernel; their root."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_a_host_without_limits(lay: Lay) -> None:
    assert host_now(lay(BARE)) == Host(TOTAL, AVAILABLE, 2, 2)
    assert host_memory_now(lay(BARE)) == Host(TOTAL, AVAILABLE)


def v2(**files: str) -> Mapping[str, str]:
    return {
        "proc/self/cgroup": "0::/pod/me\n",
        **{f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in files.items()},
    }


@pytest.mark.parametrize(
    ("limits", "total", "available"),
    [
        # In a namespace of its own the group is the root of what is mounted.
        ({"memory.max": f"{32 * GIB}\n", "memory.current": f"{10 * GIB}\n"}, 32 * GIB, 22 * GIB),
        # The page cache can be had back.
        (
            {
                "memory.max": f"{32 * GIB}\n", "memory.current": f"{31 * GIB}\n",
                "memory.stat": f"anon 9\ninactive_file {20 * GIB}\nactive_file {5 * GIB}\nslab_reclaimable {GIB}\n",
            },
            32 * GIB, 27 * GIB,
        ),
        ({"pod/me/memory.max": f"{8 * GIB}\n", "pod/me/memory.current": f"{GIB}\n"}, 8 * GIB, 7 * GIB),
        # The group above is the tighter one, and has used more.
        (
            {
                "pod/me/memory.max": f"{16 * GIB}\n", "pod/me/memory.current": f"{GIB}\n",
                "pod/memory.max": f"{12 * GIB}\n", "pod/memory.current": f"{11 * GIB}\n",
            },
            12 * GIB, GIB,
        ),
        ({"pod/memory.high": f"{6 * GIB}\n", "pod/memory.max": "max\n", "pod/memory.current": "0\n"}, 6 * GIB, 6 * GIB),
        ({"pod/me/memory.max": "max\n", "pod/me/memory.current": f"{GIB}\n"}, TOTAL, AVAILABLE),
        # More than the machine has is no limit.
        ({"memory.max": f"{999 * GIB}\n", "memory.current": "0\n"}, TOTAL, AVAILABLE),
        # More in use than allowed (the limit was lowered).
        ({"memory.max": f"{2 * GIB}\n", "memory.current": f"{3 * GIB}\n"}, 2 * GIB, 0),
        ({"memory.max": f"{2 * GIB}\n"}, 2 * GIB, 2 * GIB),
        ({"memory.max": "rubbish\n", "memory.current": "\n"}, TOTAL, AVAILABLE),
    ],
)  # fmt: skip
def test_groups_of_generation_2(lay: Lay, limits: Mapping[str, str], total: int, available: int) -> None:
    host = host_now(lay({**BARE, **v2(**limits)}))
    assert host_memory_now(lay({**BARE, **v2(**limits)})).available_bytes == host.available_bytes
    assert (host.total_bytes, host.available_bytes) == (total, available)


MEMORY_V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    "group",
    [
        f"{MEMORY_V1}/docker/abc",  # the host's hierarchy is seen
        MEMORY_V1,  # only the container's own group is mounted
    ],
)
def test_groups_of_generation_1(lay: Lay, group: str) -> None:
    files = {
        "proc/self/cgroup": "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
        f"{MEMORY_V1}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{group}/memory.limit_in_bytes": f"{16 * GIB}\n",
        f"{group}/memory.usage_in_bytes": f"{10 * GIB}\n",
        f"{group}/memory.stat": f"active_file 1\ntotal_active_file {2 * GIB}\ntotal_inactive_file {GIB}\n",
    }
    host = host_now(lay({**BARE, **files}))
    assert (host.total_bytes, host.available_bytes) == (16 * GIB, 9 * GIB)


def test_no_limit_of_generation_1(lay: Lay) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n",
        f"{MEMORY_V1}/memory.limit_in_bytes": "9223372036854771712\n",
        f"{MEMORY_V1}/memory.usage_in_bytes": "1\n",
    }
    assert host_now(lay({**BARE, **files})).total_bytes == TOTAL


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "800000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "100000 0\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "100000\n"}, 2),
        # All that is left to this process are two threads of one core.
        ({"proc/self/status": "Cpus_allowed_list:\t0,2\n"}, 1),
        ({"proc/self/status": "Cpus_allowed_list:\tno list\n"}, 2),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
    ],
)  # fmt: skip
def test_cores_within_limits(lay: Lay, files: Mapping[str, str], cores: int) -> None:
    assert host_now(lay({**BARE, "proc/self/cgroup": "0::/\n", **files})).physical_cores == cores


def test_a_group_outside_of_what_is_mounted(lay: Lay) -> None:
    files = {
        "proc/self/cgroup": "0::/../../elsewhere\n",
        "sys/fs/cgroup/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/memory.current": "0\n",
    }
    assert host_now(lay({**BARE, **files})).total_bytes == GIB


def test_older_kernels_name_threads_of_a_core_otherwise(lay: Lay) -> None:
    threads = {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n}\n" for n in range(3)}
    assert host_now(lay({"proc/meminfo": MEMINFO, **threads})) == Host(TOTAL, AVAILABLE, 3, None)


def test_nothing_is_known_of_an_empty_folder(tmp_path: Path) -> None:
    assert host_now(tmp_path) == Host()


def test_a_limit_is_known_where_the_memory_is_not(lay: Lay) -> None:
    host = host_now(lay(v2(**{"memory.max": f"{GIB}\n", "memory.current": "0\n"})))
    assert host == Host(GIB, GIB, None, None)


@given(
    st.sampled_from(
        ["proc/meminfo", "proc/self/status", "proc/self/cgroup", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/cpu.max"]
    ),
    st.binary(max_size=200)
    | st.sampled_from([b"MemTotal:", b"MemTotal: -5 kB", b"0::", b":::::", b"9" * 5000, b"-", "٣".encode()]),
)
def test_damaged_files_never_crash(tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes) -> None:
    root = tmp_path_factory.mktemp("root")
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    host_now(root)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("5\n", {5}),
        ("", set()),
        ("3-1", set()),
        ("0-99999999", set()),
        ("a", set()),
        ("1,,2", set()),
    ],
)
def test_lists_of_numbers(text: str, numbers: set[int]) -> None:
    assert number_list(text) == numbers


def test_this_host() -> None:
    host = host_now()
    assert host.physical_cores is not None
    assert host.physical_cores >= 1
