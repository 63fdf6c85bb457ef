import io
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cli import memory_reports
from cli.memory_reports import device, host, report
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from app.cli import memory_bars as bars
from app.cli.memory_bars import Place, bar, common_scale, shares
from app.cli.memory_picture import gib, memory_lines, print_memory

HYBRID = """\
memory in GiB, by the engine's own dry run; the host's bar has its own scale

CUDA0 [uuWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWKKKSCCOmm.........]  4.96 GiB left
       layers 0-23; experts of 14 on the host
CUDA1 [uWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWKKSCCCCDDDDDDDDOmm.....]  2.63 GiB left
       layers 24-47, output, draft
host  [WWWWWWWWWWWWWWWWWWWWWCHHHH...............................] 65.38 GiB left
       input embeddings; experts of 14 layers

                       CUDA0    CUDA1     host
W weights              21.39    19.34    41.80
K KV cache              1.50     1.38        -
S recurrent state       0.04     0.03        -
C compute               1.07     2.05     0.06
D draft weights            -     3.22        -
D draft KV cache           -     0.50        -
D draft compute            -     0.60        -
H prompt caches            -        -     8.00
O overhead              0.61     0.61        -
  required             24.60    27.71    49.86
  of it mapped             -        -    40.04
m margin                1.00     1.00        -
u used by others        1.28     0.49        -
. free                  4.96     2.63    65.38
  total / available    31.84    31.84   115.23

"""

OVERFULL = """\
memory in GiB, estimated from the files; the host's bar has its own scale

CUDA0 [uWWWWWWWWWWWWWWWWWWWWWWWWKKCOmm.......]                     4.58 GiB left
       layers 0-18
CUDA1 [uuuurrrWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW]!!!!!!!!!!!!!!!! 9.71 GiB too much
       layers 19-39, output
host  [WCHHHHHHH.............................................]    49.95 GiB left
       input embeddings

                       CUDA0    CUDA1     host
W weights              14.65    21.39     0.59
K KV cache              1.50     3.00        -
C compute               0.88     2.83     0.06
H prompt caches            -        -     8.00
O overhead              0.49     0.49        -
  required             17.52    27.71     8.64
  of it mapped             -        -     0.59
m margin                1.00     1.00        -
r reserved                 -     2.00        -
u used by others        0.42     2.52        -
. free                  4.58        -    49.95
! too much                 -     9.71        -
  total / available    23.52    23.52    58.59

"""

ONE_DEVICE = """\
memory in GiB, estimated from the files; the host's bar has its own scale

Vulkan0 [uuuuuWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWKKKKKKCCOOmmmmmmm....] 0.61 GiB left
         layers 0-31, output
host    [WCHHHHHHH...............................................] 9.94 GiB left
         input embeddings

                     Vulkan0     host
W weights               4.20     0.29
K KV cache              0.88        -
C compute               0.29     0.02
H prompt caches            -     1.46
O overhead              0.25        -
  required              5.62     1.78
  of it mapped             -     0.29
m margin                1.00        -
u used by others        0.76        -
. free                  0.61     9.94
  total / available     7.98    11.72

"""

CPU_ONLY = """\
memory in GiB, estimated from the files

host [WKCHHHH..................................................] 110.12 GiB left
      layers 0-17, output

                    host
W weights           0.24
K KV cache          0.04
C compute           0.07
H prompt caches     8.00
  required          8.34
  of it mapped      0.24
. free            110.12
  available       118.46

"""

UNKNOWN_MEMORY = """\
memory in GiB, estimated from the files; the host's bar has its own scale
  partial: deepseek4: its compute buffers
  partial: the memory of RPC[192.168.178.21:50052] is not known

RPC[...21:50052] [WWWWWWWWWWWWWWWWKCCCCCmm????????????????????] memory not known
                  layers 0-42, output
CUDA0            [u...........................................]         not used
host             [WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWCCC?????????] memory not known
                  input embeddings

                     RPC[...21:50052]    CUDA0     host
W weights                        8.79        -     0.39
K KV cache                       0.78        -        -
C compute                        2.44        -     0.03
  required                      12.01        -     0.42
  of it mapped                      -        -     0.39
m margin                         1.00        -        -
u used by others                    -     0.42        -
. free                              ?    23.10        ?
  total / available                 ?    23.52        ?

"""

MAPPED_OVER = """\
memory in GiB, estimated from the files; the host's bar has its own scale

CUDA0 [uWWWWWWWWWWWWWWWWWWWWKKKKKCCCOmm.....................]      9.40 GiB left
       layers 0-60, output; experts of 58 on the host
host  [WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW]!!!!!!!!!! 12.80 GiB too much
       input embeddings; experts of 58 layers

                       CUDA0     host
W weights               8.79    69.34
K KV cache              1.95        -
C compute               1.46     0.06
H prompt caches            -     2.00
O overhead              0.49        -
  required             12.70    71.39
  of it mapped             -    69.34
m margin                1.00        -
u used by others        0.42        -
. free                  9.40        -
! too much                 -    12.80
  total / available    23.52    58.59

"""


Report = Mapping[str, Any]


def piped(shown: Report, **console: Any) -> str:
    text = io.StringIO()
    print_memory(Console(file=text, markup=False, highlight=False, **console), shown)
    return text.getvalue()


@pytest.mark.parametrize(
    ("made", "picture"),
    [
        (memory_reports.hybrid, HYBRID),
        (memory_reports.overfull, OVERFULL),
        (memory_reports.one_device, ONE_DEVICE),
        (memory_reports.cpu_only, CPU_ONLY),
        (memory_reports.unknown_memory, UNKNOWN_MEMORY),
        (memory_reports.mapped_over, MAPPED_OVER),
    ],
)
def test_a_pipe_gets_80_columns_of_plain_text(made: Callable[[], Report], picture: str) -> None:
    assert piped(made(), width=200) == picture


def test_a_terminal_gets_the_same_letters_in_colour() -> None:
    coloured = piped(memory_reports.overfull(), force_terminal=True, color_system="truecolor", width=80)
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.splitlines() == OVERFULL.splitlines()


def test_of_eight_cards_a_narrow_window_shows_the_figures_in_several_tables() -> None:
    lines = [line.plain for line in memory_lines(memory_reports.eight(), 60)]
    heads = [line.split() for line in lines if line.lstrip() != line and line.split()[0].startswith(("CUDA", "host"))]
    assert heads == [["CUDA0", "CUDA1", "CUDA2", "CUDA3"], ["CUDA4", "CUDA5", "CUDA6", "CUDA7"], ["host"]]


def test_nothing_is_drawn_where_nothing_was_planned() -> None:
    planned_nothing = report([device("CUDA0", total_mib=10, free_mib=10, weights=0)], host(available_mib=5, weights=0))
    assert memory_lines(planned_nothing, 80) == []
    without_figures = report([{"name": "CUDA0", "total_bytes": 1, "free_bytes": 1}], {"available_bytes": 1})
    assert memory_lines(without_figures, 80) == []


def test_a_term_that_this_version_does_not_know_is_shown_all_the_same() -> None:
    unknown = report([device("CUDA0", total_mib=4096, free_mib=4096, new_buffers=1024)], host(available_mib=10))
    lines = [line.plain for line in memory_lines(unknown, 80)]
    assert lines[2].startswith("CUDA0 [XXXX")
    assert any(line.split() == ["X", "new", "buffers", "1.00", "-"] for line in lines)


def test_layers_in_several_pieces_a_single_one_and_a_part_of_a_draft() -> None:
    shown = report(
        [device("CUDA0", total_mib=4096, free_mib=4096, weights=1024)],
        host(available_mib=8192, weights=512),
        [("CUDA0", 0, 3, 1), ("host", 4, 4, 0), ("CUDA0", 5, 5, 1)],
        output_device="CUDA0",
        draft_device="CUDA0",
        draft_layers=4,
    )
    lines = [line.plain.strip() for line in memory_lines(shown, 80)]
    assert "layers 0-3, 5, output, 4 layers of the draft; experts of 2 on the host" in lines
    assert "layer 4; experts of 2 layers" in lines


def test_a_draft_on_the_host_is_there() -> None:
    shown = report([], host(available_mib=8192, weights=512), [("host", 0, 1, 0)], draft_device="none")
    assert any(line.plain.strip() == "layers 0-1, output, draft" for line in memory_lines(shown, 80))


def test_devices_that_share_every_layer_count_the_experts_once() -> None:
    shown = report(
        [device(name, total_mib=4096, free_mib=4096, weights=1024) for name in ("CUDA0", "CUDA1")],
        host(available_mib=8192, weights=512),
        [("CUDA0", 0, 9, 6), ("CUDA1", 0, 9, 6)],
        output_device="CUDA1",
    )
    assert any(line.plain.strip() == "input embeddings; experts of 6 layers" for line in memory_lines(shown, 80))


def test_a_small_device_beside_a_large_one_has_a_bar_of_its_share() -> None:
    large, small = (Place(name, total << 30, 0, 0, 0, {"weights": 1 << 30}) for name, total in (("a", 80), ("b", 20)))
    scale = common_scale([large, small])
    assert [bar(place, scale, 40).width for place in (large, small)] == [40, 10]


def test_a_hopeless_device_leaves_the_others_readable_and_is_marked_as_cut() -> None:
    full, hopeless = (Place(name, 8 << 30, 0, 0, 0, {"weights": size << 30}) for name, size in (("a", 8), ("b", 80)))
    scale = common_scale([full, hopeless])
    assert bar(full, scale, 30).width == 20
    assert bar(hopeless, scale, 30) == bars.Bar([("W", 20)], "!!!!!!!!!>")


def test_the_margin_of_a_device_that_gets_nothing_is_no_lack() -> None:
    unused = Place("a", 100, others_bytes=90, reserved_bytes=0, margin_bytes=50, terms={})
    assert unused.over_bytes == 0
    assert bar(unused, 100, 10) == bars.Bar([("u", 9), (".", 1)])


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0.00"), (1, "<0.01"), (5 << 30, "5.00"), (6 << 20, "0.01"), (1300 << 30, "1300.00")]
)
def test_figures_never_round_something_to_nothing(n_bytes: int, text: str) -> None:
    assert gib(n_bytes) == text


bounded = settings(max_examples=150, deadline=None)
sizes = st.integers(0, 1 << 41)
terms = st.dictionaries(st.sampled_from(list(bars.TERM_LETTERS)), sizes)


@st.composite
def places(draw: st.DrawFn) -> Place:
    total = draw(st.none() | sizes)
    others = draw(st.integers(0, total)) if total else 0
    return Place("d", total, others, draw(sizes), draw(sizes), draw(terms), draw(sizes))


@st.composite
def reports(draw: st.DrawFn) -> Report:
    devices = []
    for name in draw(st.lists(st.text("CUDARP0123456789[].:", min_size=1, max_size=40), unique=True, max_size=5)):
        total = draw(st.just(0) | sizes)
        devices.append(
            {"name": name, "total_bytes": total, "free_bytes": draw(st.integers(0, total)),
             "reserved_bytes": draw(sizes), "margin_bytes": draw(sizes), "terms": draw(terms)}
        )  # fmt: skip
    on_host = {"available_bytes": draw(st.none() | sizes), "mapped_bytes": draw(sizes), "terms": draw(terms)}
    spans = [(entry["name"], 10 * at, 10 * at + 9, at) for at, entry in enumerate(devices)]
    return report(devices, on_host, spans, partial=draw(st.lists(st.text("abc ", max_size=90), max_size=2)))


@bounded
@given(reports(), st.integers(60, 200))
def test_no_line_is_wider_than_the_window(shown: Report, width: int) -> None:
    lines = memory_lines(shown, width)
    assert max((line.cell_len for line in lines), default=0) <= width
    assert all(line.plain.isascii() for line in lines)


@bounded
@given(st.lists(places(), min_size=1, max_size=5), st.integers(10, 200))
def test_segments_add_up_to_a_bar_that_ends_where_the_place_ends(drawn: list[Place], columns: int) -> None:
    scale = common_scale(drawn)
    for place in drawn:
        shown = bar(place, scale, columns)
        inside = sum(count for _, count in shown.inside)
        assert shown.width == inside + len(shown.over) <= columns
        assert bool(shown.over) == bool(place.over_bytes)
        if place.total_bytes is None:
            assert inside == columns
        elif not place.over_bytes:
            assert abs(inside - place.total_bytes * columns / scale) <= 1 if scale else inside == 0


@bounded
@given(st.lists(sizes, min_size=1, max_size=14), st.integers(0, 200))
def test_shares_use_every_column_and_hide_nothing_that_has_room(parts: list[int], columns: int) -> None:
    widths = shares(parts, columns)
    assert sum(widths) == (columns if any(parts) else 0)
    assert all(width == 0 for size, width in zip(parts, widths, strict=True) if not size)
    if columns >= len(parts):
        assert all(width > 0 for size, width in zip(parts, widths, strict=True) if size)


def test_one_layer_is_one() -> None:
    shown = report(
        [device("CUDA0", total_mib=4096, free_mib=4096, weights=1024)],
        host(available_mib=8192, weights=512),
        [("CUDA0", 0, 0, 1)],
        output_device="CUDA0",
        draft_device="CUDA0",
        draft_layers=1,
    )
    lines = [line.plain.strip() for line in memory_lines(shown, 80)]
    assert "layer 0, output, 1 layer of the draft; experts of 1 on the host" in lines
    assert "input embeddings; experts of 1 layer" in lines
