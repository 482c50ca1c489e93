"""The encrypted file of secrets, and its key.

    STATE_DIR/secrets.enc                      a mark, a nonce, AES-256-GCM of the records
    $XDG_CONFIG_HOME/agentkernel/secrets.key   64 hex digits, mode 0600

They are apart so that a copy of the state directory alone, in a backup or a bug report, is of no
use. Whoever reads both as the same user has the secrets: that user could read them anyway.

What must hold: the file is replaced as a whole, and on disk before anybody is told; a file that
can't be read is never written over.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

from agentkernel.config.finding import user_file
from agentkernel.errors import StateCorruptError, StateError

FILE_NAME: Final = "secrets.enc"
KEY_NAME: Final = "secrets.key"
_MARK: Final = b"agentkernel secrets 1\n"
_NONCE_BYTES: Final = 12
_MOST_BYTES: Final = 16 << 20


def key_file() -> Path:
    return Path(user_file()).parent / KEY_NAME


class SealedFile:
    """Bytes that are encrypted on disk. Preconditions: the caller holds the state's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes | None:
        """None: there is no file. Raises StateCorruptError, StateError."""
        try:
            with self._path.open("rb") as file:
                sealed = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._path, error) from None
        start = len(_MARK) + _NONCE_BYTES
        if not sealed.startswith(_MARK) or not start < len(sealed) <= _MOST_BYTES:
            raise self._corrupt("it is not one that this version writes")
        key = _read_key()
        if key is None:
            raise self._corrupt(f"its key is gone: {key_file()}")
        # Loaded here: most daemons have no secrets, and never pay for it.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(key).decrypt(sealed[len(_MARK) : start], sealed[start:], _MARK)
        except InvalidTag:
            raise self._corrupt("it is damaged, or belongs to another key") from None

    def write(self, data: bytes) -> None:
        """Raises StateError; then the file is as it was."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE_BYTES)
        key = _read_key() or _make_key()
        _replace(self._path, _MARK + nonce + AESGCM(key).encrypt(nonce, data, _MARK))

    def _corrupt(self, why: str) -> StateCorruptError:
        return StateCorruptError(
            f"the file of secrets can't be read: {why}",
            hint=f"restore {self._path} and {key_file()} from the same backup; or remove "
            f"{self._path} and set the secrets again",
        )


def _read_key() -> bytes | None:
    path = key_file()
    try:
        text = path.read_text("ascii")
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        key = bytes.fromhex(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise StateCorruptError(
            f"{path} is not a key",
            hint="restore it from a backup; or remove it and the file of secrets in the state "
            "directory, and set the secrets again",
        )
    return key


def _make_key() -> bytes:
    """Two daemons of one user share the key, so it is there as a whole or not at all."""
    path = key_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{KEY_NAME}.{secrets.token_hex(8)}")
        _write(fresh, secrets.token_hex(32).encode())
        try:
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            _sync_directory(path.parent)
        finally:
            fresh.unlink()
    except OSError as error:
        raise _unusable(path, error) from None
    key = _read_key()
    assert key is not None
    return key


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            _write(fresh, data)
            os.replace(fresh, path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise _unusable(path, error) from None


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> StateError:
    return StateError(
        f"{path} can't be used: {error.strerror}",
        hint="see that the directory is yours, and that its disk has room",
    )
