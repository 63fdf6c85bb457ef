"""Settings: `PACELINE_…` variables and a `.env` file, read once by whoever builds the application."""

import ipaddress
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.errors import SettingsInvalid

# No `*`: where no key is asked for, it would let every page that is open in a browser read all there is.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*,]+")
_OWN_PORTS = {"http": ":80", "https": ":443"}


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "paceline"


class Settings(BaseSettings):
    """Everything the service can be told from outside. Frozen: a change needs a new service.

    Durations are seconds, sizes bytes. Lists come as a JSON list, or joined by `:` (paths) or `,` (RPC devices).
    """

    model_config = SettingsConfigDict(
        env_prefix="PACELINE_",
        env_file=".env",
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        allow_inf_nan=False,  # no number of seconds, and no count
    )

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8088, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    data_dir: Path = Field(default_factory=_default_data_dir, description="database, logs of instances")
    database_url: str = Field("", description="an SQLite URL; empty: paceline.db in the data folder")
    model_dirs: Annotated[tuple[Path, ...], NoDecode] = Field(
        (),
        description="folders of model files: a JSON list, or paths joined by `:`; empty: models/ in the data folder",
    )
    profiles_dir: Path | None = Field(
        None, description="folder of profile files (*.yaml); empty: profiles/ in the data folder"
    )
    engine: str = Field("auto", description="`auto`, `embedded`, or the path of a llama-server")
    engine_transport: Literal["auto", "unix", "tcp"] = Field(
        "auto", description="how engines listen: Unix sockets where they fit, else loopback ports"
    )
    runtime_dir: Path | None = Field(
        None,
        description="short folder in which each run makes a private one for sockets; empty: a temporary one",
    )
    rpc: Annotated[tuple[str, ...], NoDecode] = Field((), description="RPC devices, host:port joined by commas")
    admin_key: SecretStr | None = Field(None, description="key that may do everything")
    admin_key_file: Path | None = Field(None, description="file that holds the admin key")
    metrics_key_file: Path | None = Field(None, description="file that holds a key for /metrics and /health alone")
    allow_unauthenticated: bool = Field(False, description="listen beyond loopback without any key")
    trusted_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="host names that may be asked for where no key is configured, joined by commas"
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="pages that may call the service from a browser, such as https://chat.example, joined by commas"
    )
    metrics_public: bool = Field(False, description="/metrics and /health need no key beyond loopback")
    max_body_bytes: int = Field(100 * 1024 * 1024, gt=0, description="largest request body")
    load_total_seconds: float = Field(3600.0, gt=0, description="longest load of one instance")
    load_stall_seconds: float = Field(
        300.0, gt=0, description="longest wait in a load in which the engine says, reads and takes nothing"
    )
    log_files_kept: int = Field(200, ge=0, description="of how many instances the newest log files are kept")
    drain_seconds: float = Field(30.0, ge=0, description="how long a stop waits for requests")
    terminate_seconds: float = Field(5.0, gt=0, description="wait after the first TERM, before the second")
    kill_seconds: float = Field(2.0, gt=0, description="wait after the second TERM, before KILL")
    connect_seconds: float = Field(5.0, gt=0, description="deadline for reaching an engine")
    queue_limit: int = Field(256, ge=0, description="most requests that wait for profiles to be ready, all together")
    sign_of_life_seconds: float = Field(
        10.0, ge=0, description="a stream that waits so long for its profile gets comment lines; 0: it does not"
    )
    memory_return_seconds: float = Field(
        15.0, ge=0, description="how long devices may take to show the memory of an ended instance as free"
    )
    yield_seconds: float = Field(
        20.0, ge=0, description="after waiting so long for room, a profile gets its turn before new requests of others"
    )
    restart_pause_seconds: float = Field(
        1.0, gt=0, description="pause after a crash before the profile starts again; it doubles with each in a row"
    )
    restart_most: int = Field(
        5, ge=0, description="restarts after crashes in a row; the next crash gives the profile up"
    )
    canary_failures: int = Field(3, ge=1, description="failed requests in a row after which an instance is probed")
    canary_silence_seconds: float = Field(
        120.0, gt=0, description="silence on a request, before its answer or within, after which its engine is probed"
    )
    canary_probe_seconds: float = Field(
        120.0, gt=0, description="how long a probe looks for a sign of life; no batch of a prompt may take two of these"
    )
    idle_seconds: float = Field(600.0, gt=0, description="longest silence of an engine within an answer")
    margin_bytes: int = Field(
        1024**3, ge=0, description="memory left free on each device, where a profile says nothing"
    )
    retention_days: float = Field(
        90.0, ge=0, description="days for which rows of requests are kept; their sums stay. 0: no end"
    )
    retention_bytes: int = Field(
        2 * 1024**3, ge=0, description="size of the database past which the oldest rows of requests go; 0: no limit"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what the service logs")

    @field_validator("model_dirs", mode="before")
    @classmethod
    def _split_paths(cls, value: Any) -> Any:
        return _split_list(value, os.pathsep)

    @field_validator("rpc", "trusted_hosts", "cors_origins", mode="before")
    @classmethod
    def _split_words(cls, value: Any) -> Any:
        return _split_list(value, ",")

    @field_validator("cors_origins")
    @classmethod
    def _name_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_origin(text) for text in value)

    @field_validator("data_dir", "model_dirs", "profiles_dir", "admin_key_file", "metrics_key_file", "runtime_dir")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(path.expanduser().absolute() for path in value)
        return value.expanduser().absolute() if isinstance(value, Path) else value

    @property
    def database(self) -> str:
        """The SQLite URL that counts."""
        return self.database_url or f"sqlite:///{self.data_dir / 'paceline.db'}"

    @property
    def model_folders(self) -> tuple[Path, ...]:
        """The model folders that count."""
        return self.model_dirs or (self.data_dir / "models",)

    @property
    def profiles_folder(self) -> Path:
        """The folder of profile files that counts."""
        return self.profiles_dir or self.data_dir / "profiles"

    @property
    def listens_on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def read_admin_key(self) -> str | None:
        """The admin key, from the variable or the file; None where neither is set.

        Raises SettingsInvalid when the file cannot be read or is empty.
        """
        if self.admin_key is not None:
            return self.admin_key.get_secret_value().strip() or None
        return _read_key("PACELINE_ADMIN_KEY_FILE", self.admin_key_file)

    def read_metrics_key(self) -> str | None:
        """The key for metrics; None where no file is named. Raises SettingsInvalid as `read_admin_key` does."""
        return _read_key("PACELINE_METRICS_KEY_FILE", self.metrics_key_file)

    def make_runtime_dir(self) -> Path:
        """A new, short, private folder (mode 0700) for sockets: their paths end at 107 bytes."""
        if self.runtime_dir is not None:
            self.runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="paceline-", dir=self.runtime_dir))


def load_settings(**overrides: Any) -> Settings:
    """Read the settings, with `overrides` on top. Raises SettingsInvalid that names each variable."""
    try:
        return Settings(**overrides)
    except ValidationError as failure:
        lines = [
            f"PACELINE_{'_'.join(str(part) for part in problem['loc'][:1]).upper()}: "
            f"{problem['msg']} (got {problem['input']!r})"
            for problem in failure.errors()
        ]
        raise SettingsInvalid("; ".join(lines)) from failure


def _read_key(variable: str, path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as failure:
        raise SettingsInvalid(f"{variable} {path} cannot be read: {failure}") from failure
    if not key:
        raise SettingsInvalid(f"{variable} {path} is empty")
    return key


def _origin(text: str) -> str:
    """An origin as browsers send it: lower case, nothing after the host but a port that is not the scheme's own."""
    origin = text.lower().removesuffix("/")
    if _ORIGIN.fullmatch(origin) is None:
        raise ValueError(f"{text!r} is no origin: name each page by scheme and host, like https://chat.example:8443")
    own_port = _OWN_PORTS.get(origin.partition(":")[0])
    return origin.removesuffix(own_port) if own_port else origin


def _split_list(value: Any, separator: str) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except json.JSONDecodeError as failure:
            raise ValueError(f"not a JSON list: {failure}") from failure
    return [part.strip() for part in text.split(separator) if part.strip()]
