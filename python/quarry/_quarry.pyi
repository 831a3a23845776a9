from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, final, overload

from typing_extensions import Unpack

from quarry import _questions

__all__ = [
    "Error",
    "Events",
    "InputError",
    "InternalError",
    "Look",
    "MemoryExhaustedError",
    "Recording",
    "Snapshot",
    "Sweep",
    "Table",
    "UsageError",
    "__version__",
    "check_plan",
    "examine",
    "failed_chunk",
    "geometry",
    "input_names",
    "look",
    "read_plan",
    "read_results",
    "run",
    "run_chunk",
    "run_command",
    "unpickled",
    "write_files",
]

__version__: str

_Name: TypeAlias = str | Iterable[str]
_Path: TypeAlias = str | PathLike[str]
_Count: TypeAlias = int | Iterable[int]

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Error(Exception):
    """Base of all exceptions of this package."""

class UsageError(Error):
    """The request names something that does not exist or is out of range.

    The message begins with the argument.
    """

class InputError(Error):
    """A file cannot be read or written, or contradicts itself."""

class MemoryExhaustedError(Error):
    """A virtual machine had too little memory for its load."""

class InternalError(Error):
    """The library contradicts itself: please report it."""

_Value: TypeAlias = bool | int | float | str | None
_Row: TypeAlias = dict[str, _Value]

@final
class Table:
    """Rows of a result, which every library of data frames takes.

    Printed, it shows what the command prints. ``table[0]`` is a row, ``table["predicted_bytes"]``
    a column, and iteration goes over rows. Names of columns end with their unit.
    """

    @property
    def columns(self) -> list[str]: ...
    @property
    def about(self) -> dict[str, str]: ...
    @property
    def notes(self) -> dict[str, str]: ...
    @property
    def runs(self) -> list[dict[str, Any]]: ...
    def to_dicts(self) -> list[_Row]: ...
    def to_pandas(self) -> Any: ...
    def to_polars(self) -> Any: ...
    def to_arrow(self) -> Any: ...
    def write_parquet(self, path: _Path, *, force: bool = False) -> None: ...
    def _repr_html_(self) -> str: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Row]: ...
    @overload
    def __getitem__(self, key: str, /) -> list[_Value]: ...
    @overload
    def __getitem__(self, key: int, /) -> _Row: ...
    @overload
    def __getitem__(self, key: slice, /) -> list[_Row]: ...
    def __contains__(self, name: str, /) -> bool: ...

@final
class Events:
    """Events of a recording, as a stream of Arrow in batches."""

    @property
    def columns(self) -> list[str]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...

@final
class Snapshot:
    """A kernel's reports at one moment."""

    @staticmethod
    def read(
        source: _Path | bytes,
        *,
        stage: str | None = None,
        at: Literal["begin", "end"] | None = None,
        kernel: str | None = None,
        had_cpus: int | None = None,
        had_page_size: int | str | None = None,
    ) -> Snapshot: ...
    @staticmethod
    def now() -> Snapshot: ...
    def what_if(self, *, caches: bool = False, **given: Unpack[_questions.WhatIf]) -> Table: ...
    @property
    def file(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def page_size(self) -> int: ...
    @property
    def cpus(self) -> int | None: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def slab_bytes(self) -> int: ...
    @property
    def guesses(self) -> dict[str, str]: ...
    @property
    def notes(self) -> list[str]: ...

@final
class Recording:
    """A recording of the events of a kernel's allocators."""

    @staticmethod
    def open(source: _Path | bytes) -> Recording: ...
    @staticmethod
    def record(
        output: _Path,
        command: _Name | None = None,
        *,
        duration: float | str | None = None,
        ring: int | str | None = None,
        pid: _Count | None = None,
        cgroup: _Path | None = None,
        comm: _Name | None = None,
        stacks: bool = False,
        drains: bool = False,
        mount: bool = False,
        reports: bool = True,
        force: bool = False,
    ) -> Recording: ...
    @staticmethod
    def import_(
        source: _Path,
        output: _Path,
        *,
        kernel: str | None = None,
        arch: str | None = None,
        page_size: int | str | None = None,
        cpus: int | None = None,
        command: str | None = None,
        lost: int | None = None,
        skip_bad: bool = False,
        recorder_pid: _Count | None = None,
        force: bool = False,
        progress: bool = False,
    ) -> Recording: ...
    @staticmethod
    def from_arrow(
        events: _ArrowStream,
        output: _Path | None = None,
        *,
        like: Recording | None = None,
        force: bool = False,
    ) -> Recording: ...
    def replay(
        self,
        *,
        empty: bool = False,
        initial: bool = False,
        check: bool = False,
        jobs: int | None = None,
        caches: bool = False,
        progress: bool = False,
        **given: Unpack[_questions.Replay],
    ) -> Table: ...
    def events(self) -> Events: ...
    def callers(self, by: Literal["site", "process", "cache"] = "site") -> Table: ...
    def taints(self) -> Table: ...
    def snapshots(self) -> list[Snapshot]: ...
    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def page_size(self) -> int: ...
    @property
    def cpus(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def lost_events(self) -> int: ...
    @property
    def assumptions(self) -> list[str]: ...
    @property
    def exit_code(self) -> int | None: ...
    def __len__(self) -> int: ...

@final
class Look:
    """The first answer about a kernel's slab memory."""

    @property
    def summary(self) -> Table: ...
    @property
    def caches(self) -> Table: ...
    @property
    def sites(self) -> Table | None: ...
    @property
    def what_ifs(self) -> Table: ...
    @property
    def growth(self) -> Table | None: ...

def look(*snapshots: Snapshot | _Path, **given: Unpack[_questions.Look]) -> Look:
    """Looks at snapshots, oldest first, or at this computer."""

def geometry(
    object_size: _Count | None = None,
    /,
    *,
    snapshot: Snapshot | None = None,
    jobs: int | None = None,
    progress: bool = False,
    **given: Unpack[_questions.Geometry],
) -> Table:
    """Computes the slabs of a cache without running anything."""

@overload
def run(
    load: Literal["hackbench"],
    size: _Count | None = None,
    *,
    initial: Snapshot | None = None,
    jobs: int | None = None,
    caches: bool = False,
    progress: bool = False,
    **given: Unpack[_questions.Hackbench],
) -> Table: ...
@overload
def run(
    load: Literal["tbench"],
    size: _Count | None = None,
    *,
    initial: Snapshot | None = None,
    jobs: int | None = None,
    caches: bool = False,
    progress: bool = False,
    **given: Unpack[_questions.Tbench],
) -> Table: ...
@overload
def run(
    load: Literal["tcp_rr"],
    size: _Count | None = None,
    *,
    sizes: tuple[int, int] | None = None,
    initial: Snapshot | None = None,
    jobs: int | None = None,
    caches: bool = False,
    progress: bool = False,
    **given: Unpack[_questions.TcpRr],
) -> Table: ...
@overload
def run(
    load: Literal["will-it-scale"],
    size: _Count | None = None,
    *,
    initial: Snapshot | None = None,
    jobs: int | None = None,
    caches: bool = False,
    progress: bool = False,
    **given: Unpack[_questions.WillItScale],
) -> Table: ...
@overload
def run(
    load: Literal["micro"],
    *,
    jobs: int | None = None,
    progress: bool = False,
    **given: Unpack[_questions.Micro],
) -> Table: ...
@overload
def run(
    load: Literal["pages"],
    *,
    jobs: int | None = None,
    progress: bool = False,
    **given: Unpack[_questions.Pages],
) -> Table: ...
@overload
def run(
    load: Literal["rx"],
    *,
    jobs: int | None = None,
    progress: bool = False,
    **given: Unpack[_questions.Rx],
) -> Table: ...

@final
class Sweep:
    """All cells of a plan."""

    def __new__(cls, plan: str, caches: bool, inputs: str | None = None) -> Sweep: ...
    @property
    def cells(self) -> int: ...
    @property
    def same(self) -> list[tuple[str, str]]: ...
    def run(
        self,
        folder: _Path,
        jobs: int | None,
        memory: int | str | None,
        retry: bool,
        progress: bool,
    ) -> tuple[int, int, int]: ...
    def left(
        self, folder: _Path, retry: bool
    ) -> tuple[list[tuple[str, str, list[str], int]], int]: ...

def run_chunk(chunk: str, local: Mapping[str, _Path]) -> tuple[list[tuple[str, bytes]], int]:
    """Runs a chunk of a sweep."""

def run_command(arguments: list[str], file: _Path) -> None:
    """Runs the command with these arguments, and ends the process with its exit code."""

def unpickled(rows: bytes, runs: str, shown: str) -> Table:
    """Makes a table of what its pickle has."""

def failed_chunk(chunk: str, error: str) -> tuple[list[tuple[str, bytes]], int]:
    """Makes the rows of a chunk that no process could run."""

def input_names(inputs: list[str]) -> list[str]: ...
def examine(inputs: list[tuple[str, str]]) -> str:
    """Examines inputs: names with their paths."""

def write_files(folder: _Path, files: list[tuple[str, bytes]]) -> None:
    """Writes files to a folder. Each appears when it is whole."""

def check_plan(plan: str) -> None:
    """Checks the keys of a plan in JSON."""

def read_plan(path: _Path) -> str:
    """Reads a plan of TOML as JSON."""

def read_results(folder: _Path) -> Table:
    """Reads all rows in a folder."""
