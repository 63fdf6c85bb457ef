"""A launch made ready to be executed: its command line, environment, private key, and what requests are told of it."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from app.instances.lease import LaunchContext, Upstream
from app.launch.report import Launch
from app.llama_server.environment import child_environment
from app.llama_server.flags import ListenAddress, command_line


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is executed, where it will listen, and the provenance of every number that comes of it."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    upstream: Upstream = field(repr=False)
    context: LaunchContext


def prepare(identifier: int, launch: Launch, address: ListenAddress, empty_folder: Path) -> Prepared:
    """Make a launch ready; its key is new each time."""
    api_key = secrets.token_urlsafe(32)
    may_draft = bool(launch.profile.speculation.methods)
    return Prepared(
        argv=command_line(launch.engine, launch.flags, address),
        env=child_environment(os.environ, launch.profile.env, empty_folder=str(empty_folder), api_key=api_key),
        upstream=Upstream(identifier, api_key, address.socket_path, address.port, may_draft),
        context=LaunchContext(
            profile_id=launch.profile.id,
            revision=launch.revision,
            engine_build=launch.engine.build,
            argv_hash=blake2b("\0".join(launch.flags).encode(), digest_size=8).hexdigest(),
            device_set=launch.resolved.device_set,
            method=launch.profile.speculation.method.value,
        ),
    )
