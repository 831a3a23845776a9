"""One tree of exceptions, with the messages of the command."""

import pytest

import quarry


@pytest.fixture(scope="module")
def snapshot(snapshots):
    return quarry.Snapshot.read(snapshots[1])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"release": "6.121"}, "6.121"),
        ({"design": "slbu"}, "slub"),
        ({"page_size": "8k"}, "valid page sizes are 4k, 16k and 64k"),
        ({"page_size": 5000}, "valid page sizes are 4k, 16k and 64k"),
        ({"set": "min_partial"}, "="),
        ({"set": {"min_partail": 1}}, "min_partial"),
        ({"config": {"MEMCGG": True}}, "MEMCG"),
        ({"release": "7.3", "design": "slub"}, "cannot be used with design"),
    ],
)
def test_wrong_usage(snapshot, keywords, message):
    with pytest.raises(quarry.UsageError, match=message):
        snapshot.what_if(**keywords)


HUGE = 2**70


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (lambda of: of.what_if(cpus=HUGE), "cpus"),
        (lambda of: of.what_if(cpus=[2, -1]), "cpus"),
        (lambda of: of.what_if(page_size=-4096), "page_size"),
        (lambda of: of.what_if(jobs=-1), "jobs"),
        (lambda of: quarry.Snapshot.read(of.file, had_cpus=-1), "had_cpus"),
        (lambda of: quarry.Snapshot.read(of.file, had_cpus=HUGE), "had_cpus"),
        (lambda of: quarry.Snapshot.read(of.file, had_page_size=2**200), "had_page_size"),
        (lambda of: quarry.Snapshot.read(of.file, had_page_size="5k"), "had_page_size"),
        (lambda of: quarry.Snapshot.read(of.file, at="middle"), "at"),
        (lambda _: quarry.geometry(HUGE), "object_size"),
        (lambda _: quarry.run("tbench", HUGE), "clients"),
        (lambda _: quarry.Recording.open("kv").replay(memory=HUGE), "memory"),
        (lambda _: quarry.Recording.open("kv").callers("color"), "by"),
        (lambda _: quarry.Recording.import_("a", "b", cpus=-1), "cpus"),
        (lambda _: quarry.Recording.import_("a", "b", lost=-1), "lost"),
        (lambda _: quarry.Recording.import_("a", "b", recorder_pid=2**40), "recorder_pid"),
        (lambda _: quarry.Recording.record("a", duration=-1), "duration"),
        (lambda _: quarry.Recording.record("a", "ls", ring="x"), "ring"),
        (lambda _: quarry.Recording.record("a", "ls", pid=[1, 2**40]), "pid"),
    ],
)
def test_the_argument_comes_first(snapshot, ask, argument):
    with pytest.raises(quarry.UsageError, match=f"^{argument}: "):
        ask(snapshot)


def test_a_release_is_no_number(snapshot):
    with pytest.raises(TypeError, match=r"6\.1 and 6\.10 are the same"):
        snapshot.what_if(release=6.1)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(quarry.InputError, match="No such file"):
        quarry.Snapshot.read(tmp_path / "absent.json")
    with pytest.raises(quarry.InputError, match="bundled recordings are hackbench"):
        quarry.Recording.open("absent")
    garbage = tmp_path / "garbage.parquet"
    garbage.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(quarry.InputError, match="garbage"):
        quarry.Recording.open(garbage)
    with pytest.raises(quarry.InputError):
        quarry.Snapshot.read(b"no form of docs-inputs")


def test_little_memory():
    recording = quarry.Recording.open("hackbench")
    with pytest.raises(quarry.MemoryExhaustedError, match="--memory"):
        recording.replay(design="slub", page_size="4k", memory="4M", pages="off")
    with pytest.raises(quarry.MemoryExhaustedError, match="room"):
        quarry.run("hackbench", 10, design="slub", memory="4M")


def test_options_that_contradict_each_other():
    recording = quarry.Recording.open("kv")
    for keywords, message in [
        ({"seed": 3}, "seed needs time"),
        ({"empty": True, "check": True}, "contradicts"),
        ({"pages": "some"}, "auto, off, all"),
        ({"time": True, "machine": "milan"}, "milan"),
    ]:
        with pytest.raises(quarry.UsageError, match=message):
            recording.replay(**keywords)
    with pytest.raises(
        quarry.UsageError,
        match="there are hackbench, tbench, tcp_rr, will-it-scale, micro, pages, rx",
    ):
        quarry.run("dbench")
    with pytest.raises(TypeError, match="unexpected keyword argument 'fds'"):
        quarry.run("tbench", fds=3)
    with pytest.raises(quarry.UsageError, match="a command, or a duration"):
        quarry.Recording.record("mine.parquet")
    with pytest.raises(quarry.UsageError, match="object_size, or snapshot"):
        quarry.geometry()


def test_one_tree():
    for one in (
        quarry.UsageError,
        quarry.InputError,
        quarry.MemoryExhaustedError,
        quarry.InternalError,
    ):
        assert issubclass(one, quarry.Error)
        assert one.__module__ == "quarry"
