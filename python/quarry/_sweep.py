"""Sweeps: one question about many inputs, with threads, on an executor, or on a Dask cluster.

A chunk of a sweep is a text. Whoever runs it needs the files of its inputs, and writes its rows
to the output itself; what comes back are names. So a chunk may run twice, and anywhere.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarry import _quarry

if TYPE_CHECKING:
    from os import PathLike

    from quarry._quarry import Table

_LOG = logging.getLogger("quarry")

#: Seconds for which a cluster may have no worker.
WORKERS_TIMEOUT = 60.0
#: Times that a chunk is tried if its worker raises an error; its cells' errors are rows.
TRIES = 3
#: File that says that a folder is a sweep's.
_MARK = "quarry-sweep.json"
#: Inputs that one task examines.
EXAMINED = 64
#: Seconds between two looks at a cluster's results.
_TICK = 0.02
#: Seconds between two questions for workers.
_ASKED = 1.0


@dataclass(frozen=True)
class Results:
    """A folder with the rows of a sweep."""

    #: Folder or URI.
    output: str
    #: Cells of the plan.
    cells: int
    #: Cells that had rows before.
    present: int
    #: Cells of this run that failed; their rows say why.
    failed: int

    def table(self) -> Table:
        """Reads all rows, ordered by input and settings."""
        if not _is_uri(self.output):
            return _quarry.read_results(self.output)
        with tempfile.TemporaryDirectory() as folder:
            files, root = _filesystem(self.output)
            _copy(files, root, folder)
            return _quarry.read_results(folder)


def sweep(
    plan: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    output: str | PathLike[str],
    client: Any = None,
    caches: bool = False,
    jobs: int | None = None,
    memory: int | str | None = None,
    retry: bool = False,
    progress: bool = False,
    **axes: Any,
) -> Results:
    """Asks one question of many inputs under many settings, and keeps a row for each answer.

    ``plan`` is a file of TOML, or what would be in it: ``ask``, ``input``, ``set``, ``config`` and
    axes, each a value or a list. Keywords stand for such keys, too. Rows are in ``output``, a
    folder or a URI of fsspec; what is there is not run again. ``client`` is a Dask client or an
    executor; without one, threads of this process run the sweep.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> results = quarry.sweep(ask="replay", input=["kv"], design=["slub", "sheaf"], output=folder)
    >>> results.cells, results.failed
    (2, 0)
    >>> sorted({row["design"] for row in results.table()})
    ['sheaf', 'slub']
    """
    asked = _plan(plan, axes)
    output = os.fspath(output)
    if not _is_uri(output):
        # Workers may be in another folder.
        output = os.path.abspath(output)
    if client is None:
        made = _quarry.Sweep(json.dumps(asked), caches, None)
        _note_same(made)
        if _is_uri(output):
            with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
                return _on(_Executor(threads), made, output, retry, progress)
        cells, present, failed = made.run(output, jobs, memory, retry, progress)
        return Results(output, cells, present, failed)
    runner = _runner(client)
    inputs = _examined(runner, asked)
    made = _quarry.Sweep(json.dumps(asked), caches, inputs)
    _note_same(made)
    return _on(runner, made, output, retry, progress)


def _plan(plan: Any, axes: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the keys of a plan. Keywords replace them; their paths are relative to this process."""
    if plan is None:
        asked: dict[str, Any] = {}
    elif isinstance(plan, Mapping):
        asked = dict(plan)
    else:
        asked = json.loads(_quarry.read_plan(os.fspath(plan)))
    asked.update(axes)
    return json.loads(json.dumps(asked, default=_plain))


def _plain(value: Any) -> Any:
    """Turns paths, ranges and arrays into what JSON has."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value)


def _note_same(made: _quarry.Sweep) -> None:
    for name, first in made.same:
        _LOG.info("%s has the content of %s, and is computed once", name, first)


def _on(runner: Any, made: _quarry.Sweep, output: str, retry: bool, progress: bool) -> Results:
    """Runs what is left of a sweep on a runner."""
    chunks, present = _begun(made, output, retry)
    left, failed = {chunk.file: chunk for chunk in chunks}, 0
    bar = _bar(sum(chunk.cells for chunk in chunks)) if progress else None
    try:
        for chunk, count in runner.run_all(chunks, output):
            del left[chunk.file]
            failed += count
            if bar is not None:
                bar.update(chunk.cells)
    except _quarry.UsageError:
        raise
    except Exception as error:
        # Others' texts have several lines.
        cause = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        missing = sum(chunk.cells for chunk in left.values())
        raise _quarry.InputError(
            f"up to {missing} of {made.cells} cells have no row, those of "
            f"{_inputs_of(left.values())}: {cause}; run the same sweep again, and it goes on "
            "where it stopped (quarry sweep --status names all)"
        ) from error
    finally:
        if bar is not None:
            bar.close()
    return Results(output, made.cells, present, failed)


def _inputs_of(chunks: Iterable[_Chunk]) -> str:
    """Names of the inputs of chunks, the first of many."""
    names = list(dict.fromkeys(name for chunk in chunks for name in chunk.names))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _begun(made: _quarry.Sweep, output: str, retry: bool) -> tuple[list[_Chunk], int]:
    """Begins a sweep in its output: the chunks that have no rows there, and the cells that have."""
    if not _is_uri(output):
        left, present = made.left(output, retry)
        return [_Chunk(*chunk) for chunk in left], present
    files, root = _filesystem(output)
    files.makedirs(root, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # What was done there decides what is left.
        there = _copy(files, root, folder, ("part-", _MARK))
        if there and _MARK not in there:
            raise _quarry.UsageError(
                f"{output}: the folder is of no sweep and not empty; name a new folder"
            )
        left, present = made.left(folder, retry)
        for mark in Path(folder).glob("*.json"):
            files.put_file(str(mark), f"{root}/{mark.name}")
    return [_Chunk(*chunk) for chunk in left], present


def _copy(files: Any, root: str, folder: str, kinds: tuple[str, ...] = ("",)) -> set[str]:
    """Copies the files whose names begin so, many at a time, and returns the names of all."""
    # Workers have written since the folder was listed last.
    files.invalidate_cache()
    names = {path.rsplit("/", 1)[-1]: path for path in files.ls(root, detail=False)}
    wanted = {name: path for name, path in names.items() if name.startswith(kinds)}
    if wanted:
        local = [os.path.join(folder, name) for name in wanted]
        files.get(list(wanted.values()), local)
    # Some stores list the folder in itself.
    return set(names) - {"", root.rsplit("/", 1)[-1]}


@dataclass(frozen=True)
class _Chunk:
    """Cells that run together."""

    #: Name of the file that its rows will be in.
    file: str
    #: JSON.
    text: str
    #: Names of its inputs.
    names: list[str]
    #: Number of its cells.
    cells: int

    @property
    def inputs(self) -> dict[str, str]:
        """Files and URIs of the inputs by name."""
        return {name: _place(name) for name in self.names}


def _place(name: str) -> str:
    """Where workers find an input; a bundled recording is wherever Quarry is."""
    return os.path.abspath(name) if os.path.exists(name) else name


def _run(text: str, inputs: dict[str, str], output: str) -> int:
    """Runs a chunk where this process is, and returns the number of cells that failed."""
    local = {name: _fetched(at) if _is_uri(at) else at for name, at in inputs.items()}
    files, failed = _quarry.run_chunk(text, local)
    _write(files, output)
    return failed


def _write(files: list[tuple[str, bytes]], output: str) -> None:
    """Writes files that appear when they are whole."""
    if not _is_uri(output):
        _quarry.write_files(output, files)
        return
    there, root = _filesystem(output)
    for name, data in files:
        there.pipe_file(f"{root}/{name}", data)


def _is_uri(name: str) -> bool:
    return "://" in name


def _filesystem(uri: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as missing:
        raise _quarry.UsageError(
            f"{uri}: a URI needs fsspec: pip install kquarry[dask]"
        ) from missing
    return fsspec.core.url_to_fs(uri)


def _fetched(uri: str) -> str:
    """Copies an input into a cache of this machine; the same input is copied once."""
    try:
        return _cached(uri)
    except OSError as error:
        raise _quarry.InputError(f"{uri}: {error}") from error


def _cached(uri: str) -> str:
    files, path = _filesystem(uri)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(home, "quarry", "inputs")
    cache.mkdir(parents=True, exist_ok=True)
    # A file of another time or size is another input.
    known = hashlib.sha256(f"{uri} {files.ukey(path)}".encode()).hexdigest()[:32]
    kept = cache / f"{known}-{path.rsplit('/', 1)[-1]}"
    if not kept.exists():
        # Other threads and processes may fetch it now.
        with tempfile.TemporaryDirectory(dir=cache, prefix=".part-") as folder:
            part = Path(folder, "part")
            files.get_file(path, str(part))
            part.replace(kept)
    return str(kept)


def _examine(inputs: list[tuple[str, str]]) -> str:
    return _quarry.examine([(name, _fetched(at) if _is_uri(at) else at) for name, at in inputs])


def _examined(runner: Any, asked: dict[str, Any]) -> str | None:
    """Has a runner look at all inputs, each where it will be read."""
    _quarry.check_plan(json.dumps(asked))
    names = asked.get("input", [])
    inputs: list[tuple[str, str]] = []
    for name in [names] if isinstance(names, str) else names:
        if not _is_uri(name):
            inputs += [(one, _place(one)) for one in _quarry.input_names([name])]
            continue
        files, path = _filesystem(name)
        found = sorted(files.glob(path)) if any(mark in path for mark in "*?[") else [path]
        if not found:
            raise _quarry.UsageError(f'input "{name}": no file has such a name')
        inputs += [(uri, uri) for uri in map(files.unstrip_protocol, found)]
    if not inputs:
        return None
    batches = [inputs[at : at + EXAMINED] for at in range(0, len(inputs), EXAMINED)]
    return json.dumps([one for text in runner.map(_examine, batches) for one in json.loads(text)])


def _bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        _LOG.info("progress needs the package tqdm: pip install tqdm")
        return None
    return tqdm(total=total, desc="sweep", unit="cells")


class _Executor:
    """Chunks on an executor of ``concurrent.futures``."""

    def __init__(self, executor: concurrent.futures.Executor) -> None:
        self.executor = executor

    def map(self, function: Any, values: list[Any]) -> Iterator[str]:
        return self.executor.map(function, values)

    def run_all(self, chunks: list[_Chunk], output: str) -> Iterator[tuple[_Chunk, int]]:
        submit = self.executor.submit
        futures = {submit(_run, chunk.text, chunk.inputs, output): chunk for chunk in chunks}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()


class _Dask:
    """Chunks on a Dask cluster."""

    def __init__(self, client: Any) -> None:
        self.client = client
        try:
            client.wait_for_workers(1, timeout=WORKERS_TIMEOUT)
        except TimeoutError:
            raise _no_worker() from None

    def map(self, function: Any, values: list[Any]) -> list[str]:
        futures = self.client.map(function, values, pure=False)
        for _ in self._ended(futures):
            pass
        return self.client.gather(futures)

    def run_all(self, chunks: list[_Chunk], output: str) -> Iterator[tuple[_Chunk, int]]:
        killers = []
        for chunk, error, failed in self._run_all(chunks, output):
            if error is None:
                yield chunk, failed
            else:
                killers.append(chunk)
        # A worker takes those down that it has besides: each is tried again alone.
        for killer in killers:
            for chunk, error, failed in self._run_all([killer], output):
                if error is not None:
                    text = f"it ended its worker: {error}"
                    files, failed = _quarry.failed_chunk(chunk.text, text)
                    _write(files, output)
                yield chunk, failed

    def _run_all(
        self, chunks: list[_Chunk], output: str
    ) -> Iterator[tuple[_Chunk, Exception | None, int]]:
        """Chunks with the number of failed cells, or with the error that says that workers died."""
        from distributed import KilledWorker

        submit = self.client.submit
        futures = {
            submit(_run, chunk.text, chunk.inputs, output, pure=False, retries=TRIES - 1): chunk
            for chunk in chunks
        }
        try:
            for future in self._ended(list(futures)):
                error = future.exception()
                if isinstance(error, KilledWorker):
                    yield futures[future], error, 0
                elif error is not None:
                    raise error
                else:
                    yield futures[future], None, future.result()
        finally:
            # Without a scheduler nobody would hear it.
            if self.client.status == "running":
                self.client.cancel(list(futures))

    def _ended(self, futures: list[Any]) -> Iterator[Any]:
        """Futures as they end, as long as there are workers."""
        from distributed import as_completed

        ended = as_completed(futures)
        asked = seen = time.monotonic()
        while ended.count():
            batch = ended.next_batch(block=False)
            yield from batch
            now = time.monotonic()
            if batch:
                seen = now
                continue
            if now - asked > _ASKED:
                asked = now
                if self.client.nthreads():
                    seen = now
                elif now - seen > WORKERS_TIMEOUT:
                    raise _no_worker()
            time.sleep(_TICK)


def _no_worker() -> Exception:
    return _quarry.UsageError(
        f"the cluster has no worker for {WORKERS_TIMEOUT:.0f} s: start workers "
        "(dask worker ADDRESS), or scale the cluster, and run the same sweep again"
    )


def _runner(client: Any) -> _Executor | _Dask:
    if isinstance(client, concurrent.futures.Executor):
        return _Executor(client)
    if hasattr(client, "wait_for_workers"):
        return _Dask(client)
    kind = type(client).__name__
    raise TypeError(f"client is a {kind}: give a Client of Dask or an Executor")
