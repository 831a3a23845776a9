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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarry import _quarry

if TYPE_CHECKING:
    from os import PathLike

    from quarry._quarry import Table

_LOG = logging.getLogger("quarry")

#: Seconds for the first worker of a cluster to come.
WORKERS_TIMEOUT = 60.0
#: Times that a chunk may kill its worker before its cells fail.
KILLS = 3


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
            for path in files.ls(root, detail=False):
                files.get_file(path, os.path.join(folder, path.rsplit("/", 1)[-1]))
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
    """
    asked, base = _plan(plan, axes)
    output = os.fspath(output)
    if not _is_uri(output):
        # Workers may be in another folder.
        output = os.path.abspath(output)
    if client is None:
        made = _quarry.Sweep(json.dumps(asked), base, caches, None)
        _note_same(made)
        if _is_uri(output):
            with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
                return _on(_Executor(threads), made, output, retry, progress)
        cells, present, failed = made.run(output, jobs, memory, retry, progress)
        return Results(output, cells, present, failed)
    runner = _runner(client)
    inputs = _examined(runner, asked, base)
    made = _quarry.Sweep(json.dumps(asked), base, caches, inputs)
    _note_same(made)
    return _on(runner, made, output, retry, progress)


def _plan(plan: Any, axes: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Reads the keys of a plan, and the folder that its relative inputs are in."""
    base = "."
    if plan is None:
        asked: dict[str, Any] = {}
    elif isinstance(plan, Mapping):
        asked = dict(plan)
    else:
        asked = json.loads(_quarry.read_plan(os.fspath(plan)))
        base = os.path.dirname(os.fspath(plan)) or "."
    asked.update(axes)
    return json.loads(json.dumps(asked, default=_plain)), base


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
    failed = 0
    bar = _bar(len(chunks)) if progress else None
    try:
        for count in runner.run_all(chunks, output):
            failed += count
            if bar is not None:
                bar.update(1)
    finally:
        if bar is not None:
            bar.close()
    return Results(output, made.cells, present, failed)


def _begun(made: _quarry.Sweep, output: str, retry: bool) -> tuple[list[_Chunk], int]:
    """Begins a sweep in its output: the chunks that have no rows there, and the cells that have."""
    if not _is_uri(output):
        left, present = made.left(output, retry)
        return [_Chunk(*chunk) for chunk in left], present
    files, root = _filesystem(output)
    files.makedirs(root, exist_ok=True)
    there = {path.rsplit("/", 1)[-1]: path for path in files.ls(root, detail=False)}
    with tempfile.TemporaryDirectory() as folder:
        # What was done there decides what is left.
        for name, path in there.items():
            if name.startswith("part-") or name.endswith(".json"):
                files.get_file(path, os.path.join(folder, name))
        left, present = made.left(folder, retry)
        for mark in Path(folder).glob("*.json"):
            files.put_file(str(mark), f"{root}/{mark.name}")
    return [_Chunk(*chunk) for chunk in left], present


@dataclass(frozen=True)
class _Chunk:
    """Cells that run together."""

    #: Name of the file that its rows will be in.
    file: str
    #: JSON.
    text: str
    #: Names of its inputs.
    names: list[str]

    @property
    def inputs(self) -> dict[str, str]:
        """Files and URIs of the inputs by name; bundled recordings have none."""
        local = {name: os.path.abspath(name) for name in self.names if os.path.exists(name)}
        return local | {name: name for name in self.names if _is_uri(name)}


def _run(text: str, inputs: dict[str, str], output: str) -> int:
    """Runs a chunk where this process is, and returns the number of cells that failed."""
    local = {name: _fetched(at) if _is_uri(at) else at for name, at in inputs.items()}
    files, failed = _quarry.run_chunk(text, local)
    _write(files, output)
    return failed


def _write(files: list[tuple[str, bytes]], output: str) -> None:
    """Writes files that appear when they are whole."""
    if _is_uri(output):
        there, root = _filesystem(output)
        for name, data in files:
            there.pipe_file(f"{root}/{name}", data)
        return
    for name, data in files:
        descriptor, path = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=output)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
            os.chmod(path, 0o644)
            os.replace(path, os.path.join(output, name))
        except BaseException:
            os.unlink(path)
            raise


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
    files, path = _filesystem(uri)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(home, "quarry", "inputs")
    cache.mkdir(parents=True, exist_ok=True)
    # A file of another time or size is another input.
    known = hashlib.sha256(f"{uri} {files.ukey(path)}".encode()).hexdigest()[:32]
    kept = cache / f"{known}-{path.rsplit('/', 1)[-1]}"
    if not kept.exists():
        part = cache / f".{known}.{os.getpid()}.part"
        files.get_file(path, str(part))
        part.replace(kept)
    return str(kept)


def _examine(name: str) -> str:
    return _quarry.examine(name, _fetched(name))


def _examined(runner: Any, asked: dict[str, Any], base: str) -> str | None:
    """Has a runner look at inputs that are URIs; files are looked at here."""
    names = asked.get("input", [])
    names = [names] if isinstance(names, str) else list(names)
    uris: list[str] = []
    for name in filter(_is_uri, names):
        files, path = _filesystem(name)
        found = sorted(files.glob(path)) if any(mark in path for mark in "*?[") else [path]
        if not found:
            raise _quarry.UsageError(f'input "{name}": no file has such a name')
        uris += [files.unstrip_protocol(one) for one in found]
    if not uris:
        return None
    others = [name for name in names if not _is_uri(name)]
    texts = list(runner.map(_examine, uris))
    if others:
        texts += [_quarry.examine(name, name) for name in _quarry.input_names(base, others)]
    return f"[{','.join(texts)}]"


def _bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        _LOG.info("progress needs the package tqdm: pip install tqdm")
        return None
    return tqdm(total=total, desc="sweep", unit="chunks")


class _Executor:
    """Chunks on an executor of ``concurrent.futures``."""

    def __init__(self, executor: concurrent.futures.Executor) -> None:
        self.executor = executor

    def map(self, function: Any, values: list[str]) -> Iterator[str]:
        return self.executor.map(function, values)

    def run_all(self, chunks: list[_Chunk], output: str) -> Iterator[int]:
        submit = self.executor.submit
        futures = [submit(_run, chunk.text, chunk.inputs, output) for chunk in chunks]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
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
            raise _quarry.UsageError(
                f"the cluster has no worker after {WORKERS_TIMEOUT:.0f} s: start workers "
                "(dask worker ADDRESS), or scale the cluster"
            ) from None

    def map(self, function: Any, values: list[str]) -> list[str]:
        return self.client.gather(self.client.map(function, values, pure=False))

    def run_all(self, chunks: list[_Chunk], output: str) -> Iterator[int]:
        from distributed import KilledWorker, as_completed

        submit = self.client.submit
        futures = {
            submit(_run, chunk.text, chunk.inputs, output, pure=False, retries=KILLS - 1): chunk
            for chunk in chunks
        }
        try:
            for future in as_completed(list(futures)):
                error = future.exception()
                if isinstance(error, KilledWorker):
                    chunk = futures[future]
                    files, failed = _quarry.failed_chunk(
                        chunk.text, f"it ended its worker: {error}"
                    )
                    _write(files, output)
                    yield failed
                elif error is not None:
                    raise error
                else:
                    yield future.result()
        finally:
            self.client.cancel(list(futures))


def _runner(client: Any) -> _Executor | _Dask:
    if isinstance(client, concurrent.futures.Executor):
        return _Executor(client)
    if hasattr(client, "wait_for_workers"):
        return _Dask(client)
    kind = type(client).__name__
    raise TypeError(f"client is a {kind}: give a Client of Dask or an Executor")
