"""`paceline devices`, `models` and `inspect`: what there is to launch on, and to launch."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.cli.exit_codes import Exit
from app.cli.inventory_text import print_devices, print_model, print_models
from app.cli.options import AsJson, Url, open_client
from app.cli.render import make_console
from app.inventory.model_scan import ModelShape
from app.inventory.models import read_model, resolve_model_path
from app.settings import load_settings


def devices(
    url: Url = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the machine as a check takes it (POST /check), for plans elsewhere")
    ] = False,
) -> None:
    """Show devices, host, and who holds their memory."""
    with open_client(url) as client:
        seen = client.get("/devices")
    if as_json:
        typer.echo(json.dumps({"devices": seen["devices"], "host": seen["host"]}, indent=2))
    else:
        print_devices(make_console(), seen)


def models(url: Url = None, as_json: AsJson = False) -> None:
    """List the model files that profiles can name."""
    with open_client(url) as client:
        found = client.get("/models")["items"]
    console = make_console()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif found:
        print_models(console, [model for model in found if model["shape"]])
        for model in found:
            if model["error"]:
                console.print(f"{model['path']}: {model['error']}", style="yellow", soft_wrap=True)
    else:
        console.print("no GGUF file in the model folders: put one there, or name another folder in PACELINE_MODEL_DIRS")


def inspect(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="a GGUF file here, or one in the model folders", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say what a model file holds; needs no service."""
    here = Path(file)
    model = read_model(here if here.is_file() else resolve_model_path(file, load_settings().model_folders))
    shape = ModelShape.of(model)
    by_type: dict[str, int] = {}
    for tensor in model.tensors.values():
        by_type[tensor.type_name] = by_type.get(tensor.type_name, 0) + tensor.n_bytes
    if as_json:
        document = {"files": [str(part) for part in model.parts], **asdict(shape), "bytes_by_type": by_type}
        typer.echo(json.dumps(document, indent=2))
    else:
        print_model(make_console(), model, shape, by_type)
    if not shape.has_loadable_names:
        raise typer.Exit(Exit.REFUSED)
