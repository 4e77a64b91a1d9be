"""Where an archive is: a folder or an object store → files put there, read back, and hashed."""

import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from streams.cli.errors import UnavailableError, UsageProblemError
from streams.cli.export_files import READ_BYTES, arrow, hashed


@dataclass(frozen=True, slots=True)
class ArchiveStore:
    """A folder of one of pyarrow's file systems; paths are below it."""

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
            with file.open("rb") as read, self.files.open_output_stream(waiting) as written:
                shutil.copyfileobj(read, written, READ_BYTES)
            if self._is_folder:
                self.files.move(waiting, place)
        except OSError as error:
            raise UnavailableError(
                f"the archive cannot be written: {error}", fix="check `--out`, then repeat"
            ) from error

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
                f"the archive cannot be read: {error}", fix="check `--out`, then repeat"
            ) from error

    @property
    def _is_folder(self) -> bool:
        return bool(self.files.type_name == "local")


def open_store(out: str) -> ArchiveStore:
    """The archive in a folder, or at a URI such as `s3://bucket/usage`.

    Raises:
        ConfigurationError: pyarrow is not installed.
        UsageProblemError: nobody knows such a URI.
    """
    library, _ = arrow()
    where = out if "://" in out else Path(out).absolute().as_uri()
    try:
        files, base = import_module("pyarrow.fs").FileSystem.from_uri(where)
    except (library.ArrowInvalid, library.ArrowNotImplementedError, OSError) as error:
        raise UsageProblemError(
            f"--out: {out}: {error}", fix="name a folder, or a URI such as `s3://bucket/usage`"
        ) from error
    return ArchiveStore(files, base.rstrip("/"))
