"""Measures the figures of docs/fleet.md: sweeps on threads and on a Dask cluster.

    python python/benches/fleet.py            # all figures, some minutes
    python python/benches/fleet.py what-if --cells 1000 --rounds 1

Needs `pip install kquarry[dask]` and the sources' bundled snapshots. Nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster

import quarry
from quarry import _quarry, _sweep

DATA = Path(__file__).resolve().parents[2] / "crates/quarry-snapshot/tests/data/drgn"
RELEASES = ["6.6", "6.12", "6.18", "7.0", "7.3"]
RECORDINGS = ["hackbench", "kv", "tbench"]


def fleet(folder: Path, hosts: int) -> None:
    """Writes snapshots of hosts: bundled ones with other numbers of slabs and objects."""
    folder.mkdir()
    bundled = sorted(DATA.glob("*-snapshot.json.gz"))
    first = [json.loads(gzip.decompress(path.read_bytes())) for path in bundled]
    for host in range(hosts):
        draw = random.Random(host)
        snapshot = first[host % len(first)]
        caches = []
        for cache in snapshot["slabinfo"]:
            slabs = round(cache["num_slabs"] * draw.lognormvariate(0, 0.5))
            objects = slabs * cache["objperslab"]
            share = cache["active_objs"] / max(cache["num_objs"], 1)
            caches.append(
                {
                    **cache,
                    "num_slabs": slabs,
                    "active_slabs": slabs,
                    "num_objs": objects,
                    "active_objs": min(objects, round(objects * share * draw.uniform(0.8, 1.2))),
                }
            )
        text = json.dumps({**snapshot, "slabinfo": caches}).encode()
        # Level 1: a sender of snapshots has no time to spend.
        (folder / f"{host:06}.json.gz").write_bytes(gzip.compress(text, 1, mtime=0))


def rows(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("part-*.parquet")}


def timed(output: Path, client: Client | None, jobs: int, **asked: object) -> tuple[float, float]:
    """Seconds of a sweep, and those of all CPUs in this process and the workers."""

    def used() -> float:
        workers = client.run(time.process_time).values() if client else []
        return time.process_time() + sum(workers)

    before, start = used(), time.perf_counter()
    results = quarry.sweep(output=output, client=client, jobs=jobs, **asked)
    seconds = time.perf_counter() - start
    assert results.failed == 0, results
    return seconds, used() - before


def compare(name: str, folder: Path, workers: int, rounds: int, **asked: object) -> None:
    """Runs one sweep on threads and on a cluster of as many processes, in turn."""
    threads, cluster = [], []
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        client.wait_for_workers(workers)
        for turn in range(rounds):
            outs = [folder / f"{name}-{runner}-{turn}" for runner in ("threads", "cluster")]
            threads.append(timed(outs[0], None, workers, **asked))
            cluster.append(timed(outs[1], client, workers, **asked))
            assert rows(outs[0]) == rows(outs[1]), "the cluster has other bytes"
    files = rows(outs[0])
    with tempfile.TemporaryDirectory() as empty:
        made = _quarry.Sweep(json.dumps(asked), ".", False, None)
        chunks, _ = made.left(empty, False)
    cells = made.cells
    print(f"{name}: {cells} cells, {len(chunks)} chunks, {workers} threads or processes")
    for at, kind in enumerate(["time", "time of all CPUs"]):
        own, others = [one[at] for one in threads], [one[at] for one in cluster]
        more = [(b - a) / cells * 1000 for a, b in zip(own, others, strict=True)]
        print(f"  {kind}: threads {told(own)} s, cluster {told(others)} s")
        print(f"    more for each cell: {told(more, 3)} ms")
    print(
        f"  sent as texts of chunks: {sum(len(chunk[1]) for chunk in chunks) / cells:.0f} B a cell"
    )
    print(f"  rows: {sum(map(len, files.values())) / cells:.0f} B a cell in {len(files)} files")


def told(values: list[float], digits: int = 2) -> str:
    """The median, and the least and the most."""
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def nothing(text: str, inputs: dict[str, str], output: str) -> int:
    return 0


def scheduling(workers: int, tasks: int) -> None:
    """Chunks that do nothing: what a scheduler and its client need for each."""
    text = json.dumps({"text": "x" * 8000})
    chunks = [_sweep._Chunk("part", text, [f"host-{at}"], 1) for at in range(tasks)]
    own, _sweep._run = _sweep._run, nothing
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        runner = _sweep._Dask(client)
        start = time.perf_counter()
        assert len(list(runner.run_all(chunks, "nowhere"))) == tasks
        seconds = time.perf_counter() - start
    _sweep._run = own
    each = seconds / tasks * 1000
    print(f"scheduling: {tasks} chunks of nothing in {seconds:.1f} s, {each:.2f} ms each")


def planning(folder: Path, hosts: int) -> None:
    """A plan's inputs are read once, and its cells are kept in memory."""
    asked = {"input": str(folder), "release": RELEASES}
    before = peak()
    start = time.perf_counter()
    made = _quarry.Sweep(json.dumps(asked), ".", False, None)
    seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in folder.iterdir()) / hosts
    each = seconds / hosts * 1000
    print(f"planning: {hosts} snapshots of {size:.0f} B in {seconds:.2f} s, {each:.3f} ms each")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as empty:
        chunks, _ = made.left(empty, False)
        mark = sum(path.stat().st_size for path in Path(empty).iterdir())
    seconds = time.perf_counter() - start
    print(f"  {made.cells} cells as texts of {len(chunks)} chunks: {seconds:.2f} s")
    print(f"  memory: {(peak() - before) / made.cells:.0f} B a cell")
    print(f"  the folder's own file: {mark / hosts:.0f} B an input")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def merging(folder: Path) -> None:
    """All rows are in memory while they are ordered."""
    before = peak()
    start = time.perf_counter()
    table = _quarry.read_results(folder)
    seconds = time.perf_counter() - start
    shape = f"{len(table)} rows of {len(table.columns)} columns"
    print(f"merging: {shape} in {seconds:.2f} s")
    print(f"  memory: {(peak() - before) / len(table):.0f} B a row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="?", choices=["what-if", "replay", "scheduling", "planning"])
    parser.add_argument("--cells", type=int, default=10_000, help="of what-if")
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    print(f"{machine}, quarry {quarry.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        hosts = -(-args.cells // len(RELEASES))
        if args.part in (None, "planning", "what-if"):
            fleet(base / "hosts", hosts)
        if args.part in (None, "planning"):
            planning(base / "hosts", hosts)
        if args.part in (None, "scheduling"):
            scheduling(args.workers, 2000)
        if args.part in (None, "what-if"):
            asked = {"input": str(base / "hosts"), "release": RELEASES}
            compare("what-if", base, args.workers, args.rounds, **asked)
            merging(base / "what-if-threads-0")
        if args.part in (None, "replay"):
            seeds = -(-args.replays // len(RECORDINGS))
            asked = {
                "ask": "replay",
                "input": RECORDINGS,
                "set": {"slub.min_partial": [*range(1, seeds)]},
                "design": "slub@6.17",
            }
            compare("replay", base, args.workers, args.rounds, **asked)


if __name__ == "__main__":
    main()
