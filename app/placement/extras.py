"""What a launch takes beside weights, caches and compute buffers: driver contexts, host caches, output rows."""

from app.inventory.models import ModelFile
from app.placement.context import ContextSize, place_context, row_bytes, state_bytes_of
from app.placement.layers import Layout
from app.placement.shape import ModelShape

_MIB = 1 << 20
# A CUDA context with its modules takes 250 to 450 MiB (more with each generation of cards), and cuBLAS keeps a work
# space of 8 to 32 MiB for each handle. The engine reports neither, so the high end is taken.
_CONTEXT_BYTES = {"CUDA": 450 * _MIB, "ROCm": 450 * _MIB, "MUSA": 450 * _MIB, "CANN": 450 * _MIB}
_OTHER_CONTEXT_BYTES = 128 * _MIB
# Devices that keep their own driver elsewhere, or have none.
_WITHOUT_CONTEXT = ("RPC", "CPU", "BLAS", "Metal", "MTL")
_WITHOUT_HOST_BUFFER = ("RPC", "CPU", "BLAS", "Metal", "MTL")
_SPLITS_ROWS = ("CUDA", "ROCm", "MUSA", "SYCL")
_POOLED = ("CUDA", "ROCm", "MUSA")
_CHECKPOINT_STEP_TOKENS = 8192
_CHECKPOINTS_BESIDE_STEPS = 3
_F32_BYTES = 4
_F16_BYTES = 2
# An image of the largest size that projectors take; its graph is not known from the header.
_PROJECTOR_COMPUTE_BYTES = 512 * _MIB


def context_bytes(device: str) -> int:
    """The driver's own share of a device that a launch uses."""
    for prefix, n_bytes in _CONTEXT_BYTES.items():
        if device.startswith(prefix):
            return n_bytes
    return 0 if device.startswith(_WITHOUT_CONTEXT) else _OTHER_CONTEXT_BYTES


def pool_bytes(device: str, shape: ModelShape, size: ContextSize) -> int:
    """CUDA's flash attention unpacks a quantised cache of one layer to 16 bits, outside every reported buffer."""
    if not device.startswith(_POOLED) or not size.flash_attention:
        return 0
    is_packed = size.k_type not in ("f16", "bf16", "f32") or size.v_type not in ("f16", "bf16", "f32")
    widest = max((layer.k_width + layer.v_width for layer in shape.layers if not layer.is_windowed), default=0)
    return size.cells * size.streams * widest * _F16_BYTES if is_packed else 0


def splits_rows(device: str) -> bool:
    """Whether a matrix can be divided by rows with this device: `device ... does not support split buffers` else."""
    return device.startswith(_SPLITS_ROWS)


def has_pinned_buffer(devices: tuple[str, ...]) -> bool:
    """Whether weights on the host go to memory of the first such device's driver, and are then not stored anew."""
    return any(not device.startswith(_WITHOUT_HOST_BUFFER) for device in devices)


def output_rows_bytes(shape: ModelShape, size: ContextSize, states_read: int) -> int:
    """Rows of logits on the host, and the hidden states that a drafter reads from `states_read` layers."""
    rows = shape.vocabulary_size * max(size.outputs, size.slots)
    read = states_read * shape.embedding_length * min(size.tokens, size.batch_size)
    return (rows + read) * _F32_BYTES


def checkpoint_bytes(shape: ModelShape, size: ContextSize, most: int) -> int:
    """States that the server keeps of windowed and recurrent layers, to go back to an earlier point of a prompt.

    One for every 8,192 tokens of a slot and a few near its end, at most `most`.
    """
    count = min(most, size.cells // _CHECKPOINT_STEP_TOKENS + _CHECKPOINTS_BESIDE_STEPS)
    alone = ContextSize(tokens=size.cells, batch_size=size.batch_size, ubatch_size=size.ubatch_size)
    n_bytes = 0
    for layer in shape.layers:
        if layer.is_nextn:
            continue
        if layer.is_recurrent:
            n_bytes += state_bytes_of(shape, alone)
        elif layer.is_windowed and not size.full_windows:
            cells = alone.window_cells(shape.window)
            n_bytes += cells * (row_bytes(size.k_type, layer.k_width) + row_bytes(size.v_type, layer.v_width))
    if shape.compressed is not None:
        host = Layout((), (None,) * shape.unit_count, ())
        placed = place_context(shape, alone, host)
        n_bytes = placed.kv_host_bytes + placed.state_host_bytes
    return n_bytes * count * size.slots


def projector_bytes(projector: ModelFile | None) -> int:
    """Weights of a multimodal projector, and a bound on its graph."""
    if projector is None:
        return 0
    return sum(tensor.n_bytes for tensor in projector.tensors.values()) + _PROJECTOR_COMPUTE_BYTES
