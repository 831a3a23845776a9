"""Sweeps outlive clusters: schedulers and workers that end, and disks that are full."""

import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import dask
import fsspec
import pytest
from distributed import Client, LocalCluster
from fsspec.implementations.local import LocalFileSystem

import quarry
from quarry import _sweep

PLAN = {"release": ["6.12", "7.3"], "set": {"min_partial": [1, 9]}}


def rows(folder):
    found = sorted(folder.glob("part-*.parquet"))
    assert found
    return {path.name: path.read_bytes() for path in found}


def until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextlib.contextmanager
def program(*words):
    """A process that ends with the block, however that ends."""
    # With the functions of this file.
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def begun(folder):
    """A scheduler and a worker as processes of their own, and their client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    of_scheduler = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    of_worker = (address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    with (
        program("distributed.cli.dask_scheduler", *of_scheduler) as scheduler,
        program(
            "distributed.cli.dask_worker", *of_worker, "--local-directory", str(folder / "dask")
        ),
        Client(address, timeout=30) as client,
    ):
        yield scheduler, client


def held(text, inputs, output):
    """Runs a chunk, and ends when a file says so."""
    failed = _sweep._run(text, inputs, output)
    until(lambda: os.path.exists(f"{output}.go"))
    return failed


def test_a_sweep_goes_on_when_the_scheduler_is_another(fleet, tmp_path, monkeypatch):
    own, out = tmp_path / "own", tmp_path / "out"
    quarry.sweep(PLAN, input=str(fleet), output=own)
    whole = rows(own)
    assert len(whole) > 3
    with (
        begun(tmp_path) as (scheduler, client),
        ThreadPoolExecutor(1) as thread,
        monkeypatch.context() as patch,
    ):
        patch.setattr(_sweep, "_run", held)
        work = thread.submit(quarry.sweep, PLAN, input=str(fleet), output=out, client=client)
        until(lambda: work.done() or list(out.glob("part-*.parquet")))
        scheduler.kill()
        with pytest.raises(
            quarry.InputError, match=r"cells have no row, those of .*lost.*same sweep"
        ):
            work.result(timeout=60)
    # The one that ran when the scheduler ended is whole.
    assert 0 < len(rows(out)) < len(whole)
    with begun(tmp_path) as (_, client):
        results = quarry.sweep(PLAN, input=str(fleet), output=out, client=client)
    assert (results.cells, results.failed) == (24, 0)
    assert 0 < results.present < 24
    assert rows(out) == whole


def fatal(text, inputs, output):
    """Ends the process of one input's chunk, and of all that it runs besides."""
    if "6.1-snapshot" in text:
        with open(f"{output}.deaths", "a") as deaths:
            deaths.write("x")
        os._exit(9)
    time.sleep(0.2)
    return _sweep._run(text, inputs, output)


def test_a_chunk_that_kills_its_worker_is_failing_rows_and_no_other_is(
    fleet, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    monkeypatch.setattr(_sweep, "_run", fatal)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 2}),
        LocalCluster(
            n_workers=1, threads_per_worker=4, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        results = quarry.sweep(input=str(fleet), release=["6.12", "7.3"], output=out, client=client)
    assert (results.cells, results.failed) == (8, 2)
    for row in results.table().to_dicts():
        is_fatal = "6.1-snapshot" in row["input"]
        assert (row["status"] == "failed") == is_fatal
        assert not is_fatal or "ended its worker" in row["error"]
    # Three times with others, and three times alone.
    assert (tmp_path / "out.deaths").read_text() == 6 * "x"


def test_a_cluster_that_loses_its_workers_is_no_wait_without_end(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(_sweep, "WORKERS_TIMEOUT", 0.2)
    monkeypatch.setattr(_sweep, "_ASKED", 0.05)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", processes=False) as empty,
        Client(empty) as client,
    ):
        # They were there at first.
        monkeypatch.setattr(client, "wait_for_workers", lambda *_, **__: None)
        with pytest.raises(quarry.UsageError, match=r"no worker for .* run the same sweep again"):
            quarry.sweep(input=str(fleet), output=tmp_path / "out", client=client)


def full(text, inputs, output):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_says_what_is_missing(fleet, tmp_path, monkeypatch):
    with ThreadPoolExecutor(2) as threads:
        with monkeypatch.context() as patch:
            patch.setattr(_sweep, "_run", full)
            with pytest.raises(
                quarry.InputError,
                match=r"24 of 24 cells .* and 1 more: .*No space left.*same sweep",
            ):
                quarry.sweep(PLAN, input=str(fleet), output=tmp_path / "out", client=threads)
        results = quarry.sweep(PLAN, input=str(fleet), output=tmp_path / "out", client=threads)
    assert (results.present, results.failed) == (0, 0)


class Listed(LocalFileSystem):
    """Lists a folder once, as file systems of object stores do."""

    protocol = "listed"
    listings = {}  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("listed://"))

    def ls(self, path, detail=False, **keywords):
        if path not in self.listings:
            self.listings[path] = super().ls(path, detail=True, **keywords)
        found = self.listings[path]
        return found if detail else [one["name"] for one in found]

    def invalidate_cache(self, path=None):
        self.listings.clear()


def test_lists_of_an_object_store_are_not_old(fleet, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fsspec.register_implementation("listed", Listed)
    out = tmp_path / "out"
    with ThreadPoolExecutor(2) as threads:
        asked = {"input": f"{fleet}", "output": f"listed://{out}", "client": threads}
        results = quarry.sweep(PLAN, **asked)
        assert (results.present, len(results.table())) == (0, 24)
        assert quarry.sweep(PLAN, **asked).present == 24


def test_replays_are_the_same_bytes_on_a_cluster(tmp_path):
    asked = {
        "ask": "replay",
        "input": ["hackbench", "kv", "tbench"],
        "design": ["slub@6.17", "slab@6.3"],
        "set": {"slub.min_partial": [1, 2]},
        "until": "+0.02",
    }
    own, out = tmp_path / "own", tmp_path / "out"
    quarry.sweep(output=own, **asked)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        results = quarry.sweep(output=out, client=client, **asked)
    assert (results.cells, results.failed) == (12, 0)
    assert rows(out) == rows(own)
