"""The Linux kernel's slab allocators as a laboratory.

A ``Snapshot`` of a real kernel answers what its slab memory would be under another release, page
size, number of CPUs, tunable or design; a ``Recording`` is replayed on any of them; ``run`` runs
the classic loads. The words, units and defaults are those of the command ``quarry``. Results are
tables that pandas, polars, DuckDB and pyarrow take as they are.
"""

from quarry._quarry import (
    Error,
    Events,
    InputError,
    InternalError,
    Look,
    MemoryExhaustedError,
    Recording,
    Snapshot,
    Table,
    UsageError,
    __version__,
    geometry,
    look,
    run,
)
from quarry._sweep import Results, sweep

__all__ = [
    "Error",
    "Events",
    "InputError",
    "InternalError",
    "Look",
    "MemoryExhaustedError",
    "Recording",
    "Results",
    "Snapshot",
    "Table",
    "UsageError",
    "__version__",
    "geometry",
    "look",
    "run",
    "sweep",
]
