"""Where the memory is, whether plans hold, and what devices and instances do."""

from typing import Final

from grafana_foundation_sdk.builders import dashboard

from .panels import Head, Limits, Query, Unit, bars, board, graph, number, profiles, several
from .promql import RANGE, WINDOW, growth, quantile, selected

_MEMORY: Final = "paceline_instance_memory_bytes"
_ON_DEVICE: Final = 'device=~"$device"'
_BY: Final = "profile, device"


def placement() -> dashboard.Dashboard:
    """The dashboard."""
    device = several("device", "Device", "label_values(paceline_device_memory_own_bytes, device)")
    text = "Memory by device, instance and term beside its plan; devices, loads and evictions."
    built = board("paceline-placement", "Paceline: placement", text, profiles(), device)
    for row in (_memory, _plans, _devices, _instances):
        row(built)
    return built


def _memory(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Memory"))
    by = f"{_BY}, term"
    terms = graph(
        Head(
            "Memory of $device by instance and term",
            "As the engine told, and as planned where it told nothing. A graph for each chosen device; host is the "
            "memory beside them.",
            Unit.BYTES,
            width=24,
        ),
        Query(f"{_taken('measured', by)} or {_taken('predicted', by)}", "{{profile}} {{term}} ({{device}})"),
        stacked=True,
    )
    built.with_panel(terms.repeat("device").repeat_direction("h"))
    levels = {"size": "size", "used": "used by anybody", "own": "of our instances", "reserved": "promised to loads"}
    built.with_panel(
        graph(
            Head(
                "Memory of devices",
                "Far more used than ours: somebody else is on the device. The driver is asked while instances live.",
                Unit.BYTES,
            ),
            *(Query(_device(f"memory_{name}_bytes"), f"{{{{device}}}}: {legend}") for name, legend in levels.items()),
        )
    )
    built.with_panel(
        graph(
            Head("Memory of the host", "Within the limit of a container.", Unit.BYTES),
            Query("max by (instance) (paceline_host_memory_size_bytes)", "{{instance}}: size"),
            Query("max by (instance) (paceline_host_memory_available_bytes)", "{{instance}}: available"),
        )
    )


def _plans(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Plan and truth"))
    legend = "{{profile}} on {{device}}"
    # Terms that the engine does not tell of are not compared.
    told, planned = _taken("measured", f"{_BY}, term"), _taken("predicted", f"{_BY}, term")
    built.with_panel(
        graph(
            Head(
                "Planned and measured",
                "What an instance takes of a device, both ways, of the terms that its engine tells of: the plan has "
                "more, such as the prompt cache, which is above. All of the plan where the engine tells nothing.",
                Unit.BYTES,
            ),
            Query(f"sum by ({_BY}) ({planned} and {told}) or {_taken('predicted', _BY)}", f"{legend}: planned"),
            Query(_taken("measured", _BY), f"{legend}: measured"),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Over the plan",
                "Measured less planned, of the terms that the engine tells of. Below zero the plan was careful. Far "
                "above: a larger placement.margin_bytes.",
                Unit.BYTES,
            ),
            Query(f"sum by ({_BY}) ({told} - ({planned} or 0 * {told}))", legend),
            lowest=None,
        )
    )


def _devices(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Devices"))
    for title, text, unit, series in (
        (
            "Utilisation",
            "Share of the time in which a device computed. Swings between busy and idle: it waits for the host.",
            Unit.SHARE,
            "utilisation_ratio",
        ),
        ("Power", "What a device draws.", Unit.WATTS, "power_watts"),
        ("Temperature", "How hot a device is.", Unit.CELSIUS, "temperature_celsius"),
    ):
        built.with_panel(graph(Head(title, text, unit, width=8), Query(_device(series), "{{device}}")))
    built.with_panel(
        graph(
            Head(
                "PCIe traffic",
                "Over 20 ms each quarter minute. Gigabytes each second while tokens come: a part of the model, or the "
                "draft, is on the other side.",
                Unit.BYTES_PER_SECOND,
            ),
            Query(_device("pcie_received_bytes_per_second"), "{{device}}: to it"),
            Query(_device("pcie_sent_bytes_per_second"), "{{device}}: from it"),
        )
    )
    built.with_panel(
        number(
            Head("Throttled", "1 where something holds the clocks down: heat, or a limit of power.", Unit.COUNT),
            Query(_device("throttled"), "{{device}}"),
            limits=Limits("green", ((1, "red"),)),
        )
    )


def _instances(built: dashboard.Dashboard) -> None:
    built.with_row(dashboard.Row("Instances"))
    built.with_panel(
        graph(
            Head("Profiles by state", "Of the newest instance of each profile.", Unit.COUNT),
            Query(f"sum by (state) ({selected('paceline_instance_state')})", "{{state}}"),
            stacked=True,
        )
    )
    built.with_panel(
        graph(
            Head(
                "Evictions",
                "Instances that ended to make room. Again and again: profiles thrash.",
                Unit.COUNT,
                decimals=0,
            ),
            Query(growth("paceline_residency_evictions_total", "profile", window=WINDOW), "{{profile}}"),
        )
    )
    built.with_panel(
        graph(
            Head(
                "Starts by result",
                "What became of starts. not-begun: something but a rule was in the way, say an engine that is not "
                "there.",
                Unit.COUNT,
                decimals=0,
            ),
            Query(
                growth("paceline_instance_starts_total", "profile, result, reason", window=WINDOW),
                "{{profile}} {{result}} {{reason}}",
            ),
        )
    )
    built.with_panel(
        graph(
            Head("Restarts", "Instances that followed another, by what made them.", Unit.COUNT, decimals=0),
            Query(growth("paceline_instance_restarts_total", "profile, cause", window=WINDOW), "{{profile}} {{cause}}"),
        )
    )
    built.with_panel(
        bars(
            Head("The last load", "How long the newest instance took to get ready.", Unit.SECONDS),
            Query(f"max by (profile) ({selected('paceline_instance_last_load_seconds')})", "{{profile}}"),
        )
    )
    built.with_panel(
        graph(
            Head("Time of loads", "Nine of ten loads within the time shown took at most this long.", Unit.SECONDS),
            Query(quantile(0.9, "paceline_instance_load_seconds", "profile", window=RANGE), "{{profile}}"),
        )
    )


def _taken(source: str, by: str) -> str:
    chosen = selected(_MEMORY, _ON_DEVICE, f'source="{source}"')
    return f"sum by ({by}) ({chosen})"


def _device(series: str) -> str:
    return f"max by (device) (paceline_device_{series}{{{_ON_DEVICE}}})"
