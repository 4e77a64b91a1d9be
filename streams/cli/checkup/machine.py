"""This computer: whose packages these are, room on its disks, the folders of its workers."""

import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from streams.cli.checkup.check import Check, Fix, NotMadeError, Trouble
from streams.cli.checkup.patient import Patient
from streams.cli.stack import listed_workers

NAMES: Final = ("streams", "connectors", "schemas")
OURS: Final = "tailrace"
ROOT: Final = Path(__file__).parents[3]
FREE_BYTES_MIN: Final = 2 << 30
IN_A_DATA_DIR: Final = frozenset(
    {"lock", "tables", "faust", "last-attempt.json", "lost+found"}  # the last: a volume's own
)


def _names(_patient: Patient) -> Iterator[Trouble]:
    yield from foreign_owners(packages_distributions())
    yield from foreign_places({name: _place(name) for name in NAMES}, ROOT)


def _place(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin)


def foreign_owners(owners: Mapping[str, Sequence[str]]) -> Iterator[Trouble]:
    """Distributions that bring a package of the same name as ours.

    Args:
        owners: distributions by the top-level packages that they bring.
    """
    for name in NAMES:
        for other in sorted(set(owners.get(name, ())) - {OURS}):
            yield Trouble(
                f"the distribution {other} brings a package {name} too",
                "whichever was installed last has overwritten files of the other, without a word",
                # By file alone: whoever takes our name at an index would be installed instead.
                Fix(
                    "shell",
                    f"pip uninstall -y {shlex.quote(other)}; pip install --no-index --no-deps "
                    f"--force-reinstall …  # the wheel or folder that {OURS} came from",
                ),
            )


def foreign_places(places: Mapping[str, Path | None], root: Path) -> Iterator[Trouble]:
    """Packages that would be imported from elsewhere than the rest of this program.

    Args:
        places: their files.
        root: the folder that holds all of ours.
    """
    for name, place in places.items():
        if place is not None and not place.is_relative_to(root):
            yield Trouble(
                f"{name} is imported from {place.parent}, not from {root}",
                "another program's folder stands before ours on the path",
                Fix("shell", "cd / && env -u PYTHONPATH tailrace doctor"),
            )


def folders_of(patient: Patient) -> list[Path]:
    """Data directories of the workers of this computer, and the sandbox's own."""
    workers = listed_workers(patient.stack.facts)
    listed = [worker["data_dir"] for worker in workers if worker.get("data_dir")]
    if patient.settings.data_dir:
        listed.append(patient.settings.data_dir)
    return [path for path in dict.fromkeys(map(Path, listed)) if path.is_dir()]


def _disk(patient: Patient) -> Iterator[Trouble]:
    folders = folders_of(patient)
    if patient.stack.directory is not None:
        folders.append(patient.stack.directory)
    if not folders:
        message = "no folder of a worker or of a sandbox is on this computer"
        raise NotMadeError(message)
    yield from short_of_room({folder: shutil.disk_usage(folder).free for folder in folders})


def short_of_room(free: Mapping[Path, int]) -> Iterator[Trouble]:
    """Folders whose file system is nearly full.

    Args:
        free: bytes that are free, by folder.
    """
    for folder, left in free.items():
        if left < FREE_BYTES_MIN:
            yield Trouble(
                f"{left >> 20} MiB are free where {folder} is, less than {FREE_BYTES_MIN >> 20}",
                "a worker on a full disk stops, and so do Kafka and PostgreSQL beside it",
                Fix("shell", f"du -xh --max-depth=2 {shlex.quote(str(folder))} | sort -h | tail"),
            )


def _data_dirs(patient: Patient) -> Iterator[Trouble]:
    folders = folders_of(patient)
    if not folders:
        message = "no worker's data directory is on this computer: TAILRACE_DATA_DIR not set"
        raise NotMadeError(message)
    for folder in folders:
        yield from strangers(folder, [path.name for path in folder.iterdir()])


def strangers(folder: Path, entries: Collection[str]) -> Iterator[Trouble]:
    """What no worker of ours wrote into a data directory."""
    for name in sorted(set(entries) - IN_A_DATA_DIR):
        aside = folder.with_name(f"{folder.name}.{name}")
        yield Trouble(
            f"{folder} holds {name}, which no worker of {OURS} writes",
            "two programs in one folder damage each other's state",
            Fix("shell", shlex.join(["mv", str(folder / name), str(aside)])),
        )


CHECKS: Final[Iterable[Check[Patient]]] = (
    Check("python-names", "streams, connectors and schemas are ours alone", _names),
    Check("disk", "there is room on every disk in use", _disk),
    Check("data-dir", "workers' folders hold nothing of another program", _data_dirs),
)
