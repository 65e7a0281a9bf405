"""A folder of one host as the storage of a fleet. Each object is a file, and each change happens under a lock.

The file of an object has the object's name, and contains its raw bytes. A new file is written and
flushed next to the objects, and then renamed. So if the process is killed, either the old or the
new object exists. A process that changes an object holds the lock of its name, so conditions hold
between threads and processes. A token is the digest of the bytes and of the file's time. Each swap
advances the time, so an object that gets earlier bytes again has a new token.

The objects of a store have the owner and the mode of the store's file on this machine, or mode 0600
if there is none.

The folder must exist. So an unmounted disk causes an error, not a new folder. The folder is for one
host, because locks of other hosts may have no effect. If the file system does not distinguish `A`
and `a`, neither does this storage.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.errors import AccessError, NotFoundError, RemoteError, UsageError
from statelog.fleet.archive import Archive, Outcome, StoredObject
from statelog.storage.file.creation import FILE_MODE, sync_directory
from statelog.storage.file.descriptors import SHARED_MODE, follow_owner
from statelog.storage.file.disk import flush_file, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NEW, _LOCKS = "@new", "@locks"
"""The names of internal folders. They cannot clash with objects, because an object's name never has an `@`."""

_LOCK_COUNT = 64
"""The number of lock files. Many object names share one file, so that a folder has only a few of them."""

_NEW_S_MAX = 3600
"""The age, in seconds, from which a temporary file is assumed to belong to a dead process."""

_TRIES_MAX = 100
"""The maximum number of tries to create a file. Other processes remove its folder whenever that folder is empty."""

_NAME = re.compile(r"[A-Za-z0-9\-_.~%/]*")
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


class FolderArchive(Archive):
    """Objects in a folder.

    Args:
        path: an existing folder.

    Raises:
        NotFoundError: the folder does not exist. Facts: path.
        AccessError: the folder is not writable. Facts: path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path)
        self._paths: dict[str, Path] = {}
        """The paths of stores' files on this machine, keyed by the stores' folders in the storage."""
        with self._translating():
            for name in (_NEW, _LOCKS):
                (self._root / name).mkdir(exist_ok=True)
            self._clean()

    def keep_as(self, folder: str, path: Path) -> None:
        """Give objects below a prefix the owner and the mode of the file at a path."""
        self._paths[folder.rstrip("/")] = path

    def read(self, name: str) -> StoredObject | None:
        """Return the object, or None if it does not exist."""
        path = self._path(name)
        with self._translating(), suppress(*_NOT_THERE), path.open("rb") as file:
            data = file.read()
            return StoredObject(data, _token(file.fileno(), data))
        self._check_there()
        return None

    def look(self, name: str) -> str | None:
        """Return the token of an object, or None if it does not exist."""
        found = self.read(name)
        return None if found is None else found.token

    def create(self, name: str, data: bytes) -> str | Outcome:
        """Create an object that does not exist. Return its token."""
        return self._put(name, data, None)

    def swap(self, name: str, data: bytes, token: str) -> str | Outcome:
        """Replace an object that still has this token. Return the new token."""
        return self._put(name, data, token)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""
        return sorted(name for name, _path in self._files(prefix))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, and folders that are empty afterwards."""
        with self._translating():
            for name in names:
                path = self._path(name)
                with suppress(*_NOT_THERE), self._locked(name):
                    path.unlink()
                with suppress(OSError):  # A folder is not empty, or this user may not remove it.
                    for folder in self._folders(path)[:-1]:
                        folder.rmdir()

    def ages(self, prefix: str) -> dict[str, float]:
        """Return the age in seconds of each object whose name begins with a prefix."""
        found = {}
        for name, path in self._files(prefix):
            with self._translating(), suppress(*_NOT_THERE):
                found[name] = max(time.time() - path.stat().st_mtime, 0.0)
        return found

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _put(self, name: str, data: bytes, token: str | None) -> str | Outcome:
        path = self._path(name)
        new = self._root / _NEW / secrets.token_hex(16)
        with self._translating():
            descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE)
            try:
                like = self._like(name)
                if like is not None:
                    follow_owner(descriptor, like, like.st_mode & SHARED_MODE)
                write_all(descriptor, data, 0)
                flush_file(descriptor)
                with self._locked(name):
                    is_done = self._put_in_place(name, new, path, token)
                # Flush the directories even if another process was faster and has created the object, because the
                # caller relies on it.
                for folder in self._folders(path):
                    with suppress(FileNotFoundError):
                        sync_directory(folder)
                return _token(descriptor, data) if is_done else Outcome.REFUSED
            finally:
                os.close(descriptor)
                new.unlink(missing_ok=True)

    def _put_in_place(self, name: str, new: Path, path: Path, token: str | None) -> bool:
        if token is None and path.exists():
            return False
        if token is not None:
            if self.look(name) != token:
                return False
            moved_on = max(time.time_ns(), path.stat().st_mtime_ns + 1)
            os.utime(new, ns=(moved_on, moved_on))
        for _try in range(_TRIES_MAX):
            for folder in reversed(self._folders(path)[:-1]):
                with suppress(FileExistsError, FileNotFoundError):
                    folder.mkdir()
            with suppress(FileNotFoundError):
                new.rename(path)
                return True
        message = f"{path} cannot be written: its folder does not exist"
        raise RemoteError(message)

    def _path(self, name: str) -> Path:
        if not name or name[0] == "/" or name[-1] == "/":
            raise _no_name(name)
        _check(name)
        return self._root / name

    def _folders(self, path: Path) -> list[Path]:
        """Return the folders above an object, from the innermost to the root."""
        around = path.relative_to(self._root).parents
        return [self._root / each for each in around]

    def _files(self, prefix: str) -> list[tuple[str, Path]]:
        """Return the files whose names begin with a prefix."""
        _check(prefix)
        folder = prefix.rpartition("/")[0]
        found: list[tuple[str, Path]] = []
        with self._translating():
            pending = [folder]
            while pending:
                at = pending.pop()
                with suppress(*_NOT_THERE), os.scandir(self._root / at) as entries:
                    for entry in entries:
                        name = f"{at}/{entry.name}" if at else entry.name
                        is_ours = name not in (_NEW, _LOCKS)
                        if entry.is_dir() and is_ours and (name.startswith(prefix) or f"{name}/".startswith(prefix)):
                            pending.append(name)
                        elif not entry.is_dir() and name.startswith(prefix):
                            found.append((name, Path(entry.path)))
        self._check_there()
        return found

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        slot = blake2b(name.encode(), digest_size=2).digest()
        lock = self._root / _LOCKS / f"{int.from_bytes(slot) % _LOCK_COUNT:02}"
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, FILE_MODE)
        try:
            self._widen(descriptor, name)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # Unlock explicitly, because a child that was forked during the block keeps the descriptor open.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _widen(self, descriptor: int, name: str) -> None:
        """Let every user who may write the store's file acquire the lock, because stores of several users share it."""
        like, own = self._like(name), os.fstat(descriptor)
        mode = 0 if like is None else like.st_mode & SHARED_MODE
        if like is not None and own.st_uid == os.geteuid() and own.st_mode & mode != mode:
            follow_owner(descriptor, like, own.st_mode & SHARED_MODE | mode)

    def _like(self, name: str) -> os.stat_result | None:
        """Return the `stat` result of the local file of an object's store, or None if there is no such file."""
        path = self._paths.get(name.partition("/")[0])
        with suppress(OSError):
            return None if path is None else path.stat()
        return None

    def _clean(self) -> None:
        """Remove temporary files of killed processes."""
        for path in (self._root / _NEW).iterdir():
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _NEW_S_MAX:
                    path.unlink()

    def _check_there(self, cause: OSError | None = None) -> None:
        """Raise NotFoundError if the folder no longer exists, for example because its disk was unmounted."""
        if not (self._root / _NEW).is_dir():
            raise NotFoundError(
                f"the folder {self._root} does not exist: create it first", path=str(self._root)
            ) from cause

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translate errors of the operating system."""
        try:
            yield
        except OSError as error:
            if error.errno in _REFUSED:
                message = f"no permission for {error.filename or self._root}: {error.strerror}"
                raise AccessError(message, path=str(self._root)) from error
            self._check_there(error)
            raise RemoteError(f"{error.filename or self._root}: {error.strerror}") from error


def _check(name: str) -> None:
    """Raise UsageError for a name that leaves the folder or has invalid characters."""
    inner = name.strip("/").split("/") if name else []
    if _NAME.fullmatch(name) is None or name.startswith("/") or any(part in {"", ".", ".."} for part in inner):
        raise _no_name(name)


def _no_name(name: str) -> UsageError:
    return UsageError(f"an object in the storage cannot be named {name!r}", argument="name", value=name)


def _token(descriptor: int, data: bytes) -> str:
    digest = blake2b(data, digest_size=16).hexdigest()
    return f"{os.fstat(descriptor).st_mtime_ns:x}-{digest}"
