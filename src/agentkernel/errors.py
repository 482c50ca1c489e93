"""Every error the project raises on purpose.

    AgentKernelError
    ├── InvalidInputError         invalid_input        the caller's words are wrong   (ValueError)
    ├── NotFoundError             not_found            no such sandbox, job, image
    ├── ConflictError             conflict             the state does not allow it now
    │   └── StateLockedError      state_locked         another process owns the state directory
    ├── UnsupportedError          unsupported          this backend can't; `hint` says which can
    ├── HostError                 host_forbids         the machine forbids what isolation needs
    │   └── NetworkUnavailableError  network_unavailable  a sandbox can have no network here
    ├── UnenforceableError        unenforceable        an explicit limit or policy can't be held
    ├── PolicyDeniedError         policy_denied        a rule said no            (PermissionError)
    ├── UnauthenticatedError      unauthenticated      no valid token            (PermissionError)
    ├── RateLimitedError          rate_limited         too many requests, wait and repeat
    ├── ResourceExhaustedError    resource_exhausted   no id range, disk or memory left
    ├── SandboxUnavailableError   sandbox_unavailable  the sandbox, not the command, failed
    │   ├── LaunchError           launch_failed        it never came up
    │   ├── NotReadyError         not_ready            its template's start command failed
    │   ├── GuestProtocolError    guest_protocol       the other end broke the protocol
    │   └── GuestTimeoutError     guest_timeout        agentd did not answer      (TimeoutError)
    ├── GuestPortError            port_failed         nobody listens inside (ConnectionError)
    ├── GuestFileError            file_error           a file call failed inside       (OSError)
    │   ├── GuestFileNotFoundError    file_not_found      (FileNotFoundError)
    │   ├── GuestFileExistsError      file_exists         (FileExistsError)
    │   ├── GuestFilePermissionError  file_permission     (PermissionError)
    │   ├── GuestIsADirectoryError    is_a_directory      (IsADirectoryError)
    │   ├── GuestNotADirectoryError   not_a_directory     (NotADirectoryError)
    │   ├── GuestFileSpecialError     file_special        a FIFO, a device, a socket
    │   ├── GuestFileTooLargeError    file_too_large      more than the caller allowed
    │   └── GuestDiskFullError        disk_full           no space in the sandbox
    ├── StateError                state_unavailable    our own records can't be read or written
    │   ├── StateCorruptError     state_corrupt        they are damaged; nothing was changed
    │   └── StateTooNewError      state_too_new        a newer version wrote them
    ├── DaemonError               daemon_unavailable   no daemon answers     (ConnectionError)
    │   └── DaemonTimeoutError    daemon_timeout       it did not answer in time  (TimeoutError)
    ├── CommandFailedError        command_failed       raised only where a caller asks for it
    │   └── CommandTimeoutError   command_timeout      its time was over          (TimeoutError)
    ├── ImageInvalidError         image_invalid        an image is not what it says it is
    ├── RegistryError             registry_failed      a registry does not answer, or says no
    │   └── RegistryDeniedError   registry_denied      it wants a login, or another one
    ├── LoginError                login_failed         an agent's provider gave no new token
    │   └── LoginEndedError       login_ended          it never will: log in again
    ├── ImageBuildError           image_build_failed   a step of a build failed
    └── BuildError                build_failed         agentd could not be built

A command that fails is never an error: its exit code is a result. "The sandbox is unavailable",
"the command failed" and "a policy said no" therefore never look alike.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False  # as in typing, which the command line does not load
if TYPE_CHECKING:
    from typing import Any, ClassVar


class AgentKernelError(Exception):
    """Base of the tree. `message` says what happened, `hint` what to do about it."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def to_dict(self) -> dict[str, Any]:
        """The shape every door shows: `--json`, the HTTP API, MCP."""
        body: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.hint:
            body["hint"] = self.hint
        if self.details:
            body["details"] = self.details
        return body


class InvalidInputError(AgentKernelError, ValueError):
    code = "invalid_input"
    status = 400


class NotFoundError(AgentKernelError):
    code = "not_found"
    status = 404


class ConflictError(AgentKernelError):
    code = "conflict"
    status = 409


class StateLockedError(ConflictError):
    code = "state_locked"
    retryable = True


class UnsupportedError(AgentKernelError):
    code = "unsupported"
    status = 422


class HostError(AgentKernelError):
    code = "host_forbids"
    status = 422


class NetworkUnavailableError(HostError):
    code = "network_unavailable"


class UnenforceableError(AgentKernelError):
    code = "unenforceable"
    status = 422


class PolicyDeniedError(AgentKernelError, PermissionError):
    code = "policy_denied"
    status = 403


class UnauthenticatedError(AgentKernelError, PermissionError):
    code = "unauthenticated"
    status = 401


class RateLimitedError(AgentKernelError):
    """`details` has `retry_after_seconds`, as the answer's Retry-After has it."""

    code = "rate_limited"
    status = 429
    retryable = True


class ResourceExhaustedError(AgentKernelError):
    code = "resource_exhausted"
    status = 507
    retryable = True


class SandboxUnavailableError(AgentKernelError):
    code = "sandbox_unavailable"
    status = 503


class LaunchError(SandboxUnavailableError):
    code = "launch_failed"


class NotReadyError(SandboxUnavailableError):
    """`details` has `job`, the id of the start command's job, and `output`, its last lines."""

    code = "not_ready"


class GuestProtocolError(SandboxUnavailableError):
    code = "guest_protocol"


class GuestTimeoutError(SandboxUnavailableError, TimeoutError):
    code = "guest_timeout"
    status = 504
    retryable = True


class GuestPortError(AgentKernelError, ConnectionError):
    """A port inside the sandbox that takes no connection, or does not answer in HTTP where that is
    spoken. `details` has `port`."""

    code = "port_failed"
    status = 502
    retryable = True


class GuestFileError(AgentKernelError, OSError):
    """`errno` and `filename` are set as on any OSError, and stand in `details` too."""

    code = "file_error"
    status = 422

    def __init__(
        self, message: str, *, errno_name: str | None = None, path: str | None = None, **more: Any
    ) -> None:
        if errno_name is not None:
            more["errno_name"] = errno_name
        if path is not None:
            more["path"] = path
        super().__init__(message, **more)
        self.errno = getattr(errno, errno_name, None) if errno_name else None
        self.strerror = message
        self.filename = path

    def __str__(self) -> str:
        return self.message


class GuestFileNotFoundError(GuestFileError, FileNotFoundError):
    code = "file_not_found"
    status = 404


class GuestFileExistsError(GuestFileError, FileExistsError):
    code = "file_exists"
    status = 409


class GuestFilePermissionError(GuestFileError, PermissionError):
    code = "file_permission"
    status = 403


class GuestIsADirectoryError(GuestFileError, IsADirectoryError):
    code = "is_a_directory"


class GuestNotADirectoryError(GuestFileError, NotADirectoryError):
    code = "not_a_directory"


class GuestFileSpecialError(GuestFileError):
    code = "file_special"


class GuestFileTooLargeError(GuestFileError):
    code = "file_too_large"
    status = 413


class GuestDiskFullError(GuestFileError):
    code = "disk_full"
    status = 507


class StateError(AgentKernelError):
    code = "state_unavailable"
    status = 503
    retryable = True


class StateCorruptError(StateError):
    code = "state_corrupt"
    status = 500
    retryable = False


class StateTooNewError(StateError):
    code = "state_too_new"
    status = 500
    retryable = False


class DaemonError(AgentKernelError, ConnectionError):
    code = "daemon_unavailable"
    status = 503
    retryable = True


class DaemonTimeoutError(DaemonError, TimeoutError):
    code = "daemon_timeout"
    status = 504


class CommandFailedError(AgentKernelError):
    """For `check=True` alone: `result` is how the command ended, with what it wrote."""

    code = "command_failed"
    status = 422

    def __init__(self, message: str, *, result: Any = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.result = result


class CommandTimeoutError(CommandFailedError, TimeoutError):
    code = "command_timeout"


class ImageInvalidError(AgentKernelError):
    """A document that can't be read, a digest that is another, an archive that attacks or ends too
    early. Nothing of it is used."""

    code = "image_invalid"
    status = 422


class RegistryError(AgentKernelError):
    """`details` has `registry`, and `status` where it has answered."""

    code = "registry_failed"
    status = 502
    retryable = True


class RegistryDeniedError(RegistryError):
    """Also of an image that does not exist: many registries say the same of both."""

    code = "registry_denied"
    retryable = False


class LoginError(AgentKernelError):
    """The login with an agent's provider could not be refreshed."""

    code = "login_failed"
    status = 502
    retryable = True


class LoginEndedError(LoginError):
    """The provider does not know the login any more."""

    code = "login_ended"
    status = 409
    retryable = False


class ImageBuildError(AgentKernelError):
    """`details` has `step`, and `line` of the file it stands in; of a command that failed
    `exit_code` and `output`, its last lines."""

    code = "image_build_failed"
    status = 422


class AgentInstallError(AgentKernelError):
    """An agent could not be installed; nothing of it is left. `details` has `agent`, `step`, and of
    a command that failed `exit_code` and `output`, its last lines."""

    code = "agent_install_failed"
    status = 422


class BuildError(AgentKernelError):
    code = "build_failed"


def all_error_types() -> list[type[AgentKernelError]]:
    """The closed list, root first, for the docs and the test that compares them."""
    found: list[type[AgentKernelError]] = [AgentKernelError]
    for kind in found:
        found.extend(sub for sub in kind.__subclasses__() if sub.__module__ == __name__)
    return found
