"""Sweeps give the same bytes on threads, executors and clusters."""

import concurrent.futures
import os
import shutil
import signal
import threading
from pathlib import Path

import polars as pl
import pytest
from conftest import ROOT
from distributed import Client, LocalCluster

import quarry
from quarry import _sweep

PLAN = {"release": ["6.12", "7.3"], "set": {"min_partial": [1, 9]}}


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        yield client


def rows(folder):
    """Files of rows with their bytes; what cells took differs from run to run."""
    found = sorted(path for path in folder.iterdir() if path.name.startswith(("part-", "caches-")))
    assert found
    return {path.name: path.read_bytes() for path in found}


def test_threads_and_plans(fleet, tmp_path):
    out = tmp_path / "out"
    results = quarry.sweep(PLAN, input=f"{fleet}/*.json.gz", output=out)
    assert (results.cells, results.present, results.failed) == (4 * 2 * 3, 0, 0)
    frame = pl.DataFrame(results.table())
    assert frame.height == results.cells
    host = quarry.Snapshot.read(sorted(fleet.iterdir())[0])
    one = frame.filter(pl.col("input").str.contains("5.10"), pl.col("asked.release") == "7.3")
    told = host.what_if(**{**PLAN, "release": "7.3"})
    assert one["predicted_bytes"].to_list() == told["predicted_bytes"]
    plan = tmp_path / "plan.toml"
    plan.write_text('input = "hosts"\nrelease = ["6.12", "7.3"]\nset.min_partial = [1, 9]\n')
    again = quarry.sweep(plan, output=out)
    assert (again.cells, again.present) == (24, 24)


def test_every_runner_gives_the_same_bytes(fleet, tmp_path, cluster):
    with (
        concurrent.futures.ThreadPoolExecutor(3) as threads,
        concurrent.futures.ProcessPoolExecutor(2) as processes,
    ):
        runners = {"own": None, "threads": threads, "processes": processes, "cluster": cluster}
        made = {}
        for name, client in runners.items():
            out = tmp_path / name
            results = quarry.sweep(PLAN, input=str(fleet), output=out, client=client, caches=True)
            assert (results.cells, results.failed) == (24, 0)
            made[name] = rows(out)
    first = made.pop("own")
    for name, files in made.items():
        assert files == first, name


def test_workers_in_another_folder_find_relative_inputs(fleet, tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(fleet.parent)
    results = quarry.sweep(PLAN, input="hosts", output="out", client=cluster)
    assert (results.cells, results.failed) == (24, 0)
    quarry.sweep(PLAN, input="hosts", output="own")
    assert rows(tmp_path / "out") == rows(tmp_path / "own")


def test_what_is_there_is_not_run_again(fleet, tmp_path, cluster):
    out = tmp_path / "out"
    quarry.sweep(PLAN, input=str(fleet), output=out)
    whole = rows(out)
    gone = sorted(whole)[0]
    (out / gone).unlink()
    results = quarry.sweep(PLAN, input=str(fleet), output=out, client=cluster)
    assert 0 < results.cells - results.present < results.cells
    assert rows(out) == whole


def test_a_failing_input_is_a_row(fleet, tmp_path, cluster):
    (fleet / "bad.json").write_text("{}")
    for name, client in (("own", None), ("cluster", cluster)):
        results = quarry.sweep(PLAN, input=str(fleet), output=tmp_path / name, client=client)
        assert (results.cells, results.failed) == (30, 6)
    frame = pl.DataFrame(results.table())
    assert frame.filter(pl.col("status") == "failed")["error"].str.len_chars().min() > 10


def test_a_sweep_survives_a_worker_that_is_killed(fleet, tmp_path, cluster):
    own = tmp_path / "own"
    quarry.sweep(PLAN, input=str(fleet), output=own)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        out = tmp_path / "out"
        cluster.wait_for_workers(2, timeout=60)
        first, *_ = cluster.run(os.getpid).values()
        work = thread.submit(quarry.sweep, PLAN, input=str(fleet), output=out, client=cluster)
        os.kill(first, signal.SIGKILL)
        assert work.result(timeout=60).failed == 0
    assert rows(out) == rows(own)


def test_inputs_and_output_are_uris(fleet, tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "own"
    quarry.sweep(PLAN, input=str(fleet), output=own)
    out = tmp_path / "out"
    results = quarry.sweep(
        PLAN, input=f"file://{fleet}/*.json.gz", output=f"file://{out}", client=cluster
    )
    assert (results.cells, results.failed) == (24, 0)
    told, same = results.table(), quarry.sweep(PLAN, input=str(fleet), output=own).table()
    assert told["predicted_bytes"] == same["predicted_bytes"]
    again = quarry.sweep(
        PLAN, input=f"file://{fleet}/*.json.gz", output=f"file://{out}", client=cluster
    )
    assert again.present == 24


def test_threads_that_fetch_one_input_do_not_share_a_part(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    both = threading.Barrier(2)

    class Slow:
        def ukey(self, path):
            return path

        def get_file(self, path, local):
            with Path(local).open("w") as file:
                file.write("first")
                file.flush()
                both.wait(timeout=60)
                file.write(" second")

    monkeypatch.setattr(_sweep, "_filesystem", lambda uri: (Slow(), "host"))
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        kept = list(threads.map(_sweep._fetched, ["slow://host"] * 2))
    assert kept[0] == kept[1]
    assert Path(kept[0]).read_text() == "first second"
    assert [path.name for path in Path(kept[0]).parent.iterdir()] == [Path(kept[0]).name]


def test_a_machine_is_read_where_the_sweep_is_planned(tmp_path, monkeypatch):
    machines = ROOT / "crates/quarry-machines/machines"
    plan = tmp_path / "plans/plan.toml"
    plan.parent.mkdir()
    keys = {"ask": "run micro", "count": "100", "pattern": "batch", "design": "slub@6.17"}
    keys["machine"] = "mine.toml"
    plan.write_text("".join(f'{key} = "{value}"\n' for key, value in keys.items()))
    shutil.copy(machines / "haswell-ep-2x12.toml", plan.parent / "mine.toml")
    monkeypatch.chdir(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        first = quarry.sweep(plan, output="out", client=threads)
        assert (first.cells, first.present, first.failed) == (1, 0, 0)
        before = first.table()["object_ns"]
        shutil.copy(machines / "milan-2x64.toml", plan.parent / "mine.toml")
        again = quarry.sweep(plan, output="out", client=threads)
        assert (again.cells, again.present, again.failed) == (1, 0, 0)
    # The rows of the old file are gone. A keyword's path is relative to this process.
    assert len(again.table()) == 1
    assert again.table()["object_ns"] != before
    own = quarry.sweep(plan, machine="plans/mine.toml", output="out")
    assert (own.cells, own.present) == (1, 1)


def test_uris_and_patterns_are_inputs_of_one_sweep(fleet, tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, *_ = sorted(fleet.iterdir())
    results = quarry.sweep(
        PLAN, input=[f"file://{first}", f"{fleet}/*"], output=tmp_path / "out", client=cluster
    )
    # The first file is there twice, and asked once.
    assert (results.cells, results.failed) == (24, 0)


def test_wrong_plans_say_what_is_wrong(fleet, tmp_path, monkeypatch):
    out = tmp_path / "out"
    for keywords, message in [
        ({"input": str(fleet), "relase": "7.3"}, "the nearest is"),
        ({"input": "absent-*"}, "no file has such a name"),
        ({"release": "7.3"}, "the plan has no input"),
    ]:
        with pytest.raises(quarry.UsageError, match=message):
            quarry.sweep(output=out, **keywords)
    with pytest.raises(TypeError, match="client is a str"):
        quarry.sweep(input=str(fleet), output=out, client="tcp://localhost:1")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "mine.txt").write_text("x")
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        for place, client in ((foreign, None), (f"file://{foreign}", thread)):
            with pytest.raises(quarry.UsageError, match="not empty"):
                quarry.sweep(input=str(fleet), output=place, client=client)
    monkeypatch.setattr(_sweep, "WORKERS_TIMEOUT", 0.1)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", processes=False) as empty,
        Client(empty) as client,
        pytest.raises(quarry.UsageError, match="start workers"),
    ):
        quarry.sweep(input=str(fleet), output=out, client=client)
