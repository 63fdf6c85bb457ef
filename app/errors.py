"""Every error of Paceline is a named situation that carries its own fix.

    PacelineError                    base; `code` is the stable kebab-case name of the situation
    |-- SettingsInvalid              the service cannot start as configured
    |-- DatabaseUnavailable          the database cannot be opened, or is of a newer version
    |-- DataFolderInUse              another service runs on this data folder
    |-- ProfileError
    |   |-- ProfileNotFound
    |   |-- ProfileExists
    |   |-- ProfileInvalid           fields that do not validate; carries the list of them
    |   |   `-- CommandLineInvalid   a raw command line that cannot be read (llama_server/shell_text.py)
    |   |-- ProfileManaged           a file in the profiles folder owns it
    |   |-- ProfileFileUnreadable    such a file that is not what it should be (profiles/yaml_documents.py)
    |   |-- ProfileChanged           If-Match named another revision
    |   `-- ProfileInUse             it runs, so it cannot go
    |-- ModelFileError
    |   |-- ModelFileMissing         no such file, or a part of a split set is missing
    |   |-- ModelFileUnreadable      not GGUF, truncated, lying lengths
    |   `-- ModelFileOutside         a path that leaves the model folders
    |-- EngineError
    |   |-- EngineNotFound
    |   |-- EngineUnusable           it exists, but did not answer as llama-server does
    |   `-- CommandLineRejected      the embedded engine cannot honour a flag (llama_server/embedded/flag.py)
    |-- LaunchRefused                the check found an error; carries the report
    |-- InstanceError
    |   |-- InstanceNotFound
    |   |-- InstanceNotRunning       the profile has no life that could be stopped
    |   |-- InstanceFailed           it ended without being asked; carries reason and last lines
    |   `-- WaitTimedOut             the state that was waited for did not come in time
    |-- RequestError                 what a relayed request can meet before the engine answers
    |   |-- BodyInvalid
    |   |-- BodyTooLarge
    |   |-- ModelNotNamed
    |   |-- ModelUnknown
    |   |-- LogprobsWrong            log probabilities of a profile that speculates: the engine's are wrong
    |   |-- NoProfileFits            `auto` was asked for, and none of the profiles can take the request
    |   |-- ProfileNotRunning
    |   |   `-- ProfileBusy          it runs, and serves as many requests as it may at once
    |   |-- QueueFull                too many requests wait for a profile already
    |   |-- QueueTimedOut            the profile was not ready in the time that a request waits
    |   |-- UpstreamFailed           the engine broke off, or cannot be reached
    |   |-- UpgradeRefused           another protocol was asked for (proxy/passage.py)
    |   `-- RequestCancelled         somebody cancelled it (proxy/delivery.py)
    |-- RequestNotFound              no such recorded request
    |-- RequestOver                  it has ended, so it cannot be cancelled
    |-- QueryInvalid                 filters or groups that cannot be answered (telemetry/queries.py)
    |-- ParquetMissing               an export as Parquet without pyarrow (telemetry/export.py)
    |-- AccessDenied                 key missing, wrong, or without the right
    `-- KeyExists, KeyNotFound, KeyInvalid, KeyNeeded    what making and revoking keys can meet (access/key.py)

Only `api/` knows which HTTP status each of them becomes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class PacelineError(Exception):
    """A named situation. `details` holds typed members for machine readers.

    `recorded` is what is kept of it with a request, where the message quotes the client: whoever asks makes up as many
    texts as he likes, and each would be kept.
    """

    code: ClassVar[str] = "internal-error"

    def __init__(self, message: str, *, recorded: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.recorded = message if recorded is None else recorded
        self.details: Mapping[str, Any] = details


class SettingsInvalid(PacelineError):
    """The service cannot start as it is configured."""

    code = "settings-invalid"


class DatabaseUnavailable(PacelineError):
    """The database cannot be opened or migrated."""

    code = "database-unavailable"


class DataFolderInUse(PacelineError):
    """Another service runs on this data folder."""

    code = "data-folder-in-use"


class ProfileError(PacelineError):
    """Something about a launch profile."""


class ProfileNotFound(ProfileError):
    """No profile has that id."""

    code = "profile-not-found"


class ProfileExists(ProfileError):
    """A profile with that id exists already."""

    code = "profile-exists"


class ProfileInvalid(ProfileError):
    """Fields that do not validate; `problems` lists `{"field", "message"}`."""

    code = "profile-invalid"

    def __init__(self, message: str, problems: Sequence[Mapping[str, str]]) -> None:
        super().__init__(message, problems=[dict(problem) for problem in problems])
        self.problems = problems


class ProfileManaged(ProfileError):
    """A file in the profiles folder owns this profile; `file` names it."""

    code = "profile-managed"


class ProfileChanged(ProfileError):
    """If-Match named a revision that is no longer the current one."""

    code = "profile-changed"


class ProfileInUse(ProfileError):
    """The profile runs, so it cannot be removed."""

    code = "profile-in-use"


class ModelFileError(PacelineError):
    """Something about a model file."""


class ModelFileMissing(ModelFileError):
    """No such file, or a part of a split set is missing."""

    code = "model-file-missing"


class ModelFileUnreadable(ModelFileError):
    """Not a GGUF file that can be read: magic, version, byte order, length."""

    code = "model-file-unreadable"


class ModelFileOutside(ModelFileError):
    """The path leads out of the model folders."""

    code = "model-file-outside"


class EngineError(PacelineError):
    """Something about the llama.cpp engine."""


class EngineNotFound(EngineError):
    """No engine was found where the settings say to look."""

    code = "engine-not-found"


class EngineUnusable(EngineError):
    """The engine exists but does not answer as llama-server does."""

    code = "engine-unusable"


class LaunchRefused(PacelineError):
    """The check found an error; `report` is the whole PlacementReport."""

    code = "launch-refused"

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report


class InstanceError(PacelineError):
    """Something about one life of a server process."""


class InstanceNotFound(InstanceError):
    """No instance has that id."""

    code = "instance-not-found"


class InstanceNotRunning(InstanceError):
    """The profile has no life that could be stopped."""

    code = "instance-not-running"


class InstanceFailed(InstanceError):
    """It ended without being asked to; `reason` and `lines` say why."""

    code = "instance-failed"


class WaitTimedOut(InstanceError):
    """The state that was waited for did not come in time."""

    code = "wait-timed-out"


class RequestError(PacelineError):
    """What a relayed request can meet before the engine answers it."""


class BodyInvalid(RequestError):
    """The request body is not the JSON object that the endpoint takes."""

    code = "body-invalid"


class BodyTooLarge(RequestError):
    """The request body is over `max_body_bytes`."""

    code = "body-too-large"


class ModelNotNamed(RequestError):
    """No model is named, and there is more than one to choose from."""

    code = "model-not-named"


class ModelUnknown(RequestError):
    """No profile answers to that name."""

    code = "model-unknown"


class LogprobsWrong(RequestError):
    """Log probabilities are asked of a profile that speculates; the engine's are wrong there."""

    code = "logprobs-wrong"


class NoProfileFits(RequestError):
    """`auto` was asked for, and none of the profiles can take the request."""

    code = "no-profile-fits"


class ProfileNotRunning(RequestError):
    """The profile has no instance that takes requests now."""

    code = "profile-not-running"


class ProfileBusy(ProfileNotRunning):
    """The profile runs, and serves as many requests as it may at once."""

    code = "profile-busy"


class QueueFull(RequestError):
    """Too many requests wait already, for the profile or for all together."""

    code = "queue-full"


class QueueTimedOut(RequestError):
    """The profile was not ready in the time that a request waits for it."""

    code = "queue-timed-out"


class UpstreamFailed(RequestError):
    """The engine broke off or cannot be reached."""

    code = "upstream-failed"


class RequestNotFound(PacelineError):
    """No recorded request has that id."""

    code = "request-not-found"


class RequestOver(PacelineError):
    """The request has ended already."""

    code = "request-over"


class AccessDenied(PacelineError):
    """The key is missing, wrong, or lacks the right; `status` is 401 or 403."""

    code = "access-denied"
