"""Where an archive is: a folder or an object store → files put there, read back, and hashed."""

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from streams.cli.errors import UnavailableError, UsageProblemError
from streams.cli.export_files import READ_BYTES, arrow, hashed

FIX: Final = "check `--out` and, of an object store, AWS_ACCESS_KEY_ID and the like; then repeat"
_CREDENTIALS: Final = re.compile(r"\w+://[^/?#@]*:(?!\d+/)[^@]*@")
"""A login with its password in an address; after a mere colon may stand a port."""


@dataclass(frozen=True, slots=True)
class ArchiveStore:
    """A folder of one of pyarrow's file systems; paths are below it."""

    out: str
    """As it was asked for."""
    files: Any
    base: str

    def put(self, file: Path, path: str) -> None:
        """A file of this machine in its place, whole.

        Raises:
            UnavailableError: it cannot be written there.
        """
        place = f"{self.base}/{path}"
        # An object appears at once; a file of a folder would grow in sight.
        waiting = f"{place}.part" if self._is_folder else place
        try:
            if self._is_folder:
                self.files.create_dir(place.rpartition("/")[0], recursive=True)
            self._copy(file, waiting)
            if self._is_folder:
                self.files.move(waiting, place)
        except OSError as error:
            raise UnavailableError(
                f"the archive {self.out} cannot be written: {error}", fix=FIX
            ) from error

    def _copy(self, file: Path, place: str) -> None:
        try:
            with file.open("rb") as read, self.files.open_output_stream(place) as written:
                shutil.copyfileobj(read, written, READ_BYTES)
        except BaseException:
            # However its block is left, closing the stream ends the upload: with half a file, under
            # the name of a whole one.
            with suppress(OSError):
                self.files.delete_file(place)
            raise

    def digest_of(self, path: str) -> str | None:
        """SHA-256 of a file as it is there now; None for none.

        Raises:
            UnavailableError: nobody answers there.
        """
        try:
            with self.files.open_input_stream(f"{self.base}/{path}") as read:
                return hashed(read)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(
                f"the archive {self.out} cannot be read: {error}", fix=FIX
            ) from error

    @property
    def _is_folder(self) -> bool:
        return bool(self.files.type_name == "local")


def open_store(out: str) -> ArchiveStore:
    """The archive in a folder, or at a URI such as `s3://bucket/usage`.

    Raises:
        ConfigurationError: pyarrow is not installed.
        UsageProblemError: nobody knows such a URI, or it holds a password.
        UnavailableError: nobody answers who knows the bucket.
    """
    library, _ = arrow()
    if _CREDENTIALS.match(out):
        # It would stand in lists of processes and in what is printed.
        raise UsageProblemError(
            "--out: holds a password, which everybody on this machine can read",
            fix="give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, and no login",
        )
    where = out if "://" in out else Path(out).absolute().as_uri()
    try:
        files, base = import_module("pyarrow.fs").FileSystem.from_uri(where)
    except (library.ArrowInvalid, library.ArrowNotImplementedError) as error:
        raise UsageProblemError(
            f"--out: {out}: {error}", fix="name a folder, or a URI such as `s3://bucket/usage`"
        ) from error
    except OSError as error:
        # Of an object store without a region in its URI, the bucket's own is asked for.
        raise UnavailableError(f"the archive {out} cannot be reached: {error}", fix=FIX) from error
    return ArchiveStore(out, files, base.rstrip("/"))
