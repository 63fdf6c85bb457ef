"""What a report says of where the work of a launch is."""

from app.launch.report import Launch
from app.placement.amounts import counted
from app.placement.budgets import HOST_NAME
from app.placement.resolve import NO_DEVICE


def layers_by_device(launch: Launch) -> dict[str, int]:
    """How many of the target's layers the plan has on each device, in the order of the layers; the host left out."""
    names = dict.fromkeys(str(span["device"]) for span in launch.report.layers if span["device"] != HOST_NAME)
    return {name: layers_on(launch, name) for name in names}


def layers_on(launch: Launch, name: str) -> int:
    """How many of the target's layers the plan has in one place."""
    return sum(int(span["last"]) - int(span["first"]) + 1 for span in launch.report.layers if span["device"] == name)


def experts_on_host(launch: Launch) -> int:
    """Of how many layers on devices the plan has the experts on the host."""
    return sum(int(span["experts_on_host"]) for span in launch.report.layers if span["device"] != HOST_NAME)


def main_device(launch: Launch) -> str | None:
    """The device of the output layer, else the last that has layers; None where all are on the host."""
    output = launch.report.resolved.get("output_device")
    if output not in (None, HOST_NAME, NO_DEVICE):
        return str(output)
    return next(reversed(layers_by_device(launch)), None)


def host_work(launch: Launch) -> str:
    """What the plan computes on the host, in words; empty where that is nothing."""
    parts = []
    if on_host := layers_on(launch, HOST_NAME):
        parts.append(counted(on_host, "layer"))
    if moved := experts_on_host(launch):
        parts.append(f"the experts of {counted(moved, 'layer')}")
    if launch.resolved.draft_device == NO_DEVICE or launch.resolved.draft_gpu_layers == 0:
        parts.append("the draft")
    if launch.report.host.get("terms", {}).get("kv_cache"):
        parts.append("a KV cache")
    return " and ".join(parts)
