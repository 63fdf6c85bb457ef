"""Tensor overrides: the patterns that put expert weights into host memory, as llama-server does.

A pattern is searched for in the tensor's name, and the first one that is found decides, so the
patterns of several flags are kept in the order of the command line.
"""

from app.llama_server.embedded.flag import Params, Put
from app.llama_server.embedded.values import owner

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_DENSE = r"\.ffn_(up|down|gate)\."


def expert_override(_: bool = True) -> str:
    """All experts to the host."""
    return f"{_EXPERTS}=CPU"


def expert_layer_overrides(layer_count: int) -> str:
    """The experts of the first layers, counted from layer 0, to the host."""
    return ",".join(rf"blk\.{layer}{_EXPERTS}=CPU" for layer in range(layer_count))


def dense_layer_overrides(layer_count: int) -> str:
    """The dense feed-forward weights of the first layers to the host."""
    return ",".join(rf"blk\.{layer}{_DENSE}=CPU" for layer in range(layer_count))


def joined(path: str) -> Put:
    """Adds overrides behind those that earlier flags gave."""

    def put(params: Params, overrides: str) -> None:
        holder, name = owner(params, path)
        setattr(holder, name, ",".join(filter(None, (getattr(holder, name), overrides))))

    return put


def all_experts(path: str) -> Put:
    """Puts the override of all experts, for the flag that takes no value."""
    return lambda params, _: joined(path)(params, expert_override())
