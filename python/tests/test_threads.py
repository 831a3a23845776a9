"""Long work leaves Python to others, and ends when Ctrl-C asks for it."""

import signal
import subprocess
import sys
import threading
import time

import pytest

import quarry

LONG = {
    "replay": "quarry.Recording.open('hackbench').replay(copies=64, design='slub')",
    "replay --time": "quarry.Recording.open('hackbench').replay(time=True, copies=12)",
    "run": "quarry.run('hackbench', 100, design='slub', memory='64G')",
}


@pytest.mark.parametrize("work", LONG)
def test_ctrl_c_ends_long_work(work):
    code = (
        "import quarry, sys\n"
        "print('begun', flush=True)\n"
        f"try:\n    {LONG[work]}\n"
        "except KeyboardInterrupt:\n    sys.exit(77)\n"
    )
    started = [sys.executable, "-c", code]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        time.sleep(0.5)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        # As long as the work takes by itself is a minute and more.
        assert process.wait(timeout=20) == 77, process.stderr.read()
        assert process.stderr.read() == b""


def test_other_threads_run_meanwhile():
    turns = 0
    over = threading.Event()

    def count():
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = turns
    quarry.Recording.open("tbench").replay(design="slub", page_size="4k", jobs=1)
    after = turns
    over.set()
    thread.join()
    assert after - before >= 5


def test_progress_is_shown_when_it_is_asked_for(capfd):
    recording = quarry.Recording.open("kv")
    recording.replay(design="slub", page_size="4k")
    assert capfd.readouterr() == ("", "")
    recording.replay(design="slub", page_size="4k", progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "replay: 100%" in shown.err


def test_progress_without_tqdm_is_a_note(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with caplog.at_level("INFO", logger="quarry"):
        quarry.run("tbench", 1, design="slub", time="1ms", progress=True)
    assert "pip install tqdm" in caplog.text


def test_notes_are_logged(caplog, capfd, snapshots):
    with caplog.at_level("INFO", logger="quarry"):
        quarry.Snapshot.read(snapshots[1]).what_if(release="5.4")
    assert "Linux 5.4: " in caplog.text
    assert capfd.readouterr().out == ""
