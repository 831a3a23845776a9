"""Answers are those of the command to the same question."""

import pytest

import quarry


def flat(run, at=""):
    """Members of a report that are one value, by path."""
    for name, value in run.items():
        path = f"{at}.{name}" if at else name
        if isinstance(value, dict):
            yield from flat(value, path)
        elif not isinstance(value, list):
            yield path, value


def same(table, runs):
    assert len(table) == len(runs)
    for row, run, report in zip(table.to_dicts(), runs, table.runs, strict=True):
        timing = report.pop("events_per_second", None)
        assert run.pop("events_per_second", None) is None or timing > 0
        assert report == run
        for path, value in flat(run):
            if path in row and value is not None:
                assert row[path] == value, path


def test_what_if(command, snapshots):
    path = snapshots[2]
    options = ["--release", "7.3", "--page-size", "4k,64k", "--set", "min_partial=1,9"]
    told = command("what-if", path, *options)
    snapshot = quarry.Snapshot.read(path)
    table = snapshot.what_if(release="7.3", page_size=["4k", 65536], set={"min_partial": [1, 9]})
    same(table, told["runs"])
    assert table.columns[:3] == ["design", "page_size", "cpus"]
    facts = told["snapshot"]
    assert (snapshot.kernel, snapshot.page_size) == (facts["kernel"], facts["page_size"])
    assert (snapshot.cpus, snapshot.slab_bytes) == (facts["cpus"], facts["slab_bytes"])
    caches = snapshot.what_if(release="7.3", caches=True)
    assert len(caches) == len(table.runs[0]["caches"])
    assert set(caches["design"]) == {table["design"][0]}


def test_what_if_of_several_releases(command, snapshots):
    releases = ["6.18", "7.3"]
    table = quarry.Snapshot.read(snapshots[1]).what_if(release=releases)
    each = [command("what-if", snapshots[1], "--release", release) for release in releases]
    same(table, [told["runs"][0] for told in each])


def test_options_of_the_configuration(command, snapshots):
    told = command("what-if", snapshots[1], "--config", "MEMCG=n", "--set", "slub_debug=FZ")
    snapshot = quarry.Snapshot.read(snapshots[1])
    same(snapshot.what_if(config={"MEMCG": False}, set={"slub_debug": "FZ"}), told["runs"])


def test_a_snapshot_of_bytes(snapshots):
    of_file = quarry.Snapshot.read(snapshots[0])
    of_bytes = quarry.Snapshot.read(snapshots[0].read_bytes())
    assert of_bytes.file == "<bytes>"
    assert of_bytes.what_if(release="6.12").runs == of_file.what_if(release="6.12").runs


def test_tables_of_a_snapshot_name_its_content(snapshots, tmp_path):
    path = snapshots[0]
    results = quarry.sweep(input=str(path), release="7.3", output=tmp_path / "out")
    (digest,) = results.table()["input_digest"]
    assert " changes most with the settings asked for" in " ".join(str(results.table()).split())
    for source in (path, path.read_bytes()):
        snapshot = quarry.Snapshot.read(source)
        looked = quarry.look(snapshot)
        for table in (snapshot.what_if(release="7.3"), looked.summary, looked.caches):
            assert table.notes["quarry.input_digest"] == digest
    other = quarry.Snapshot.read(snapshots[1]).what_if().notes["quarry.input_digest"]
    several = quarry.look(*snapshots[:2]).summary.notes["quarry.input_digest"]
    assert several == f"{digest}; {other}"


def test_replay(command):
    options = ["--design", "slub,sheaf@7.0", "--page-size", "4k,64k", "--cpus", "4", "--no-timing"]
    told = command("replay", "kv", *options, "--set", "cpu_partial=0,6")
    recording = quarry.Recording.open("kv")
    table = recording.replay(
        design=["slub", "sheaf@7.0"], page_size=["4k", "64k"], cpus=4, set="cpu_partial=0,6"
    )
    for run in told["runs"]:
        del run["events_per_second"]
    same(table, told["runs"])
    assert recording.kernel == told["trace"]["kernel"]
    assert table.notes["quarry.input_digest"] == recording.digest


def test_what_is_not_given_is_filled_in(command):
    told = command("replay", "tbench", "--no-timing", "--memory", "1G")
    for run in told["runs"]:
        del run["events_per_second"]
    same(quarry.Recording.open("tbench").replay(memory="1G"), told["runs"])


def test_replay_in_simulated_time(command):
    options = ["--time", "--machine", "milan-2x64", "--seed", "7", "--no-timing"]
    told = command("replay", "kv", "--design", "slub,sheaf@7.0", *options)
    for run in told["runs"]:
        del run["events_per_second"]
    table = quarry.Recording.open("kv").replay(
        design=["slub", "sheaf@7.0"], time=True, machine="milan-2x64", seed=7
    )
    same(table, told["runs"])
    caches = quarry.Recording.open("kv").replay(
        design=["slub", "sheaf@7.0"], time=True, machine="milan-2x64", seed=7, caches=True
    )
    of_runs = [cache["operations"] for run in told["runs"] for cache in run["caches"]]
    assert caches["operations"] == of_runs


@pytest.mark.parametrize(
    ("words", "load", "size", "keywords"),
    [
        (["tbench", "2,4", "-t", "1ms"], "tbench", [2, 4], {"time": "1ms"}),
        (["tcp_rr", "-n", "3", "-r", "5,6"], "tcp_rr", 3, {"sizes": (5, 6)}),
        (
            ["hackbench", "-g", "1", "-l", "3", "-p"],
            "hackbench",
            1,
            {"loops": 3, "transport": "pipe"},
        ),
    ],
)
def test_loads(command, words, load, size, keywords):
    told = command("run", *words, "--cpus", "4", "--design", "slub,sheaf@7.0", "--seed", "3")
    table = quarry.run(load, size, cpus=4, design=["slub", "sheaf@7.0"], seed=3, **keywords)
    same(table, told["runs"])
    assert table.columns[:2] == ["load", "size"]


@pytest.mark.parametrize(
    ("words", "load", "keywords"),
    [
        (
            "micro --count 50 --design slub,sheaf",
            "micro",
            {"count": 50, "design": ["slub", "sheaf"]},
        ),
        ("pages --pages 8 --processes 2", "pages", {"pages": 8, "processes": 2}),
        (
            "rx --packets 500 --rings 1 --driver none",
            "rx",
            {"packets": 500, "rings": 1, "driver": "none"},
        ),
    ],
)
def test_workloads(command, words, load, keywords):
    told = command("run", *words.split())
    same(quarry.run(load, **keywords), told["runs"])


def test_any_keyword_takes_a_list():
    table = quarry.run("tbench", 1, cpus=1, design="slub", time=["1ms", "2ms"], seed=[1, 2])
    assert table["asked.time"] == ["1ms", "1ms", "2ms", "2ms"]
    assert table["asked.seed"] == [1, 2, 1, 2]
    with pytest.raises(TypeError, match="clients: it is given twice"):
        quarry.run("tbench", 1, clients=2)


def test_geometry(command, snapshots):
    told = command("geometry", "--object-size", 9856, "--page-size", "64k", "--cpus", 16)
    table = quarry.geometry([192, 9856], page_size="64k", cpus=16)
    same(quarry.geometry(9856, page_size="64k", cpus=16), told["runs"])
    assert table["object_size"] == [192, 9856]
    caches = quarry.geometry(snapshot=quarry.Snapshot.read(snapshots[2]))
    assert caches["objects_per_slab"][:20] == caches["reported_objects"][:20]


def test_look(command, snapshots):
    told = command("look", *snapshots[:2])
    look = quarry.look(snapshots[0], quarry.Snapshot.read(snapshots[1]))
    assert look.summary.runs[0]["slab_bytes"] == told["slab_bytes"]
    assert look.caches.runs == told["caches"]
    assert look.what_ifs.runs == told["what_ifs"]
    assert look.growth.runs == told["growth"]["caches"]
    assert quarry.look(snapshots[0]).growth is None
    with pytest.raises(quarry.Error, match=r"6\.12"):
        quarry.look(snapshots[0], kernel="6.12")


def test_a_file_without_slabs_has_bytes(command, tmp_path):
    report = tmp_path / "dmesg"
    report.write_text("""Mem-Info:
 slab_reclaimable:11120 slab_unreclaimable:98031
Unreclaimable slab info:
Name                      Used          Total
kmalloc-1k              44912KB      44960KB
filp                    11800KB      11808KB
""")
    look = quarry.look(report)
    assert look.caches.runs == command("look", report)["cache_bytes"]
    assert look.caches["total_bytes"] == [44960 << 10, 11808 << 10]
    assert (look.growth, len(look.what_ifs.runs)) == (None, 0)
    assert look.sites.runs == []
    with pytest.raises(quarry.Error, match="OOM report"):
        quarry.Snapshot.read(report).what_if()


def test_callers(command):
    told = command("callers", "kv", "--by", "cache")
    assert quarry.Recording.open("kv").callers("cache").runs == told["callers"]


def test_taints(command, tmp_path):
    text, trace = tmp_path / "kmem.txt", tmp_path / "a.parquet"
    line = "a 1 [000] 1.00000{}: kmem:mm_page_{} page=0x1 pfn=0x200 order={}"
    alloc = " migratetype={} gfp_flags=GFP_KERNEL"
    lines = [
        line.format(1, "alloc:", 9) + alloc.format(1),
        line.format(2, "free:", 9),
        line.format(3, "alloc:", 0) + alloc.format(0),
    ]
    text.write_text("\n".join(lines) + "\n")
    made = quarry.Recording.import_(text, trace, kernel="6.12", cpus=2)
    told = command("callers", trace, "--taints")
    assert made.taints().runs == told["taints"]
    assert [row["was_clean"] for row in made.taints().runs] == [True, False]


def test_import(command, tmp_path):
    text = tmp_path / "kmem.txt"
    text.write_text(
        "a 1 [000] 1.000001: kmem:kmalloc: call_site=f+0x1 ptr=0xffff888000001000 bytes_req=100 "
        "bytes_alloc=128 gfp_flags=GFP_KERNEL node=-1 accounted=false\n"
    )
    made = quarry.Recording.import_(text, tmp_path / "a.parquet", kernel="6.12", cpus=2)
    assert (len(made), made.kernel, made.cpus) == (1, "6.12", 2)
    with pytest.raises(quarry.UsageError, match="exists"):
        quarry.Recording.import_(text, tmp_path / "a.parquet")
    assert len(quarry.Recording.import_(text, tmp_path / "a.parquet", force=True)) == 1


def test_policies_of_the_page_allocator(command):
    """Policies are runs side by side, with the places of pages of each."""
    options = [
        "--policy",
        "release,steer",
        "--design",
        "sheaf@7.0",
        "--page-size",
        "4k",
        "--memory",
        "1G",
    ]
    told = command("replay", "tbench", "--no-timing", *options)
    table = quarry.Recording.open("tbench").replay(
        policy=["release", "steer"], design="sheaf@7.0", page_size="4k", memory="1G"
    )
    same(table, told["runs"])
    placed = [run["pages"]["placement"] for run in told["runs"]]
    assert len(placed) == 2
    assert all(one["tainted_blocks"] > 0 for one in placed)
