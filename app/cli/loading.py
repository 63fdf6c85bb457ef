"""Starting a profile and following its load."""

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from app.cli.client import ServiceClient, profile_path

_PAUSE_SECONDS = 0.1
_ON_THE_WAY = frozenset({"starting", "loading"})


def start_profile(
    client: ServiceClient, console: Console, profile_id: str, *, force: bool = False, wait: bool = True
) -> Mapping[str, Any]:
    """Ask for a start, and show how it goes until it is ready or has ended. Returns the instance.

    Raises ServiceProblem, with the report where the check refuses.
    """
    instance: Mapping[str, Any] = client.post(profile_path(profile_id, "start"), force=force)
    if wait and instance["state"] in _ON_THE_WAY:
        instance = _follow(client, console, instance)
    return instance


def print_outcome(console: Console, instance: Mapping[str, Any]) -> bool:
    """Say how a start stands; whether that is good."""
    name, state = instance["profile_id"], instance["state"]
    if instance["failure"]:
        console.print(f"{name} failed: {instance['failure']['message']}", style="red", soft_wrap=True)
        return False
    seconds = f" after {instance['load_seconds']:.1f} s" if instance["load_seconds"] is not None else ""
    process = "" if instance["pid"] is None else f", pid {instance['pid']}"
    console.print(f"{name} is {state}{seconds} (instance {instance['id']}{process})", soft_wrap=True)
    for degradation in instance["degradations"]:
        console.print(f"  degraded: {degradation}", style="yellow")
    return bool(state != "stopped")


def _follow(client: ServiceClient, console: Console, instance: Mapping[str, Any]) -> Mapping[str, Any]:
    """Poll the instance. On a terminal one line moves; elsewhere each state gets a line."""
    name, shown = instance["profile_id"], ""
    began = time.monotonic()
    with console.status(f"{name} …") as line:
        while instance["state"] in _ON_THE_WAY:
            line.update(f"{name} is {instance['state']}, {time.monotonic() - began:.0f} s")
            if not console.is_terminal and shown != instance["state"]:
                shown = instance["state"]
                console.print(f"{name} is {shown}")
            time.sleep(_PAUSE_SECONDS)
            instance = client.get(f"/instances/{instance['id']}")
    return instance
