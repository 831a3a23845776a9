"""The wheel alone, in an environment without any other package, has the module and the command."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest


def variable(name):
    value = os.environ.get(name)
    assert value, f"{name} is not set; cargo xtask python sets it"
    return Path(value)


@pytest.fixture(scope="module")
def empty():
    """Programs of the environment that has the wheel alone."""
    return variable("QUARRY_EMPTY") / "bin"


@pytest.fixture
def host(snapshots, tmp_path):
    path = tmp_path / "host.json"
    shutil.copy(snapshots[0], path)
    return path


def run(program, *args):
    environment = {**os.environ, "COLUMNS": "90"}
    words = [program, *args]
    return subprocess.run(words, capture_output=True, check=False, env=environment, timeout=60)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["look", "host.json"],
        ["what-if", "host.json", "--release", "7.3", "--json"],
        ["geometry", "--object-size", "9856", "--page-size", "64k"],
        ["completions", "bash"],
        ["look", "absent.json"],
        ["look", "host.json", "--colour"],
        ["what-if", "host.json", "--release", "9.99"],
        [],
        ["look", b"\xff"],
    ],
)
def test_it_is_the_command(empty, host, monkeypatch, words):
    monkeypatch.chdir(host.parent)
    own, program = run(empty / "quarry", *words), run(variable("QUARRY_COMMAND"), *words)
    assert own.stdout == program.stdout
    assert own.stderr == program.stderr
    assert own.returncode == program.returncode


def test_exit_codes(empty, host):
    assert run(empty / "quarry", "look", host).returncode == 0
    assert run(empty / "quarry", "look", host.with_name("absent")).returncode == 1
    assert run(empty / "quarry", "look", "--colour").returncode == 2


def test_a_reader_that_has_seen_enough(empty):
    with subprocess.Popen(
        [empty / "quarry", "tunables"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0


def test_an_interrupt_ends_it(empty):
    words = [empty / "quarry", "replay", "hackbench", "--time", "--copies", "8"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        time.sleep(1)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == -signal.SIGINT
        assert b"Traceback" not in child.stderr.read()


def test_the_module_needs_nothing(empty, host):
    code = (
        "import quarry, importlib.metadata as metadata\n"
        f"print(quarry.look({str(host)!r}))\n"
        "names = {found.name for found in metadata.distributions()}\n"
        "assert names == {'kquarry'}, names\n"
    )
    done = run(empty / "python", "-c", code)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"kernel 5.10" in done.stdout


def test_uvx_runs_the_wheel(host, tmp_path):
    uvx = [sys.executable, "-m", "uv", "tool", "run", "--offline", "--python", sys.executable]
    kept = {"UV_CACHE_DIR": str(tmp_path / "kept"), "UV_TOOL_DIR": str(tmp_path / "tools")}
    done = subprocess.run(
        [*uvx, "--from", str(variable("QUARRY_WHEEL")), "quarry", "look", str(host)],
        capture_output=True,
        check=False,
        env={**os.environ, **kept},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert b" in slabs" in done.stdout


def test_the_wheel_says_what_it_is():
    wheel = variable("QUARRY_WHEEL")
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = packed.read(metadata).decode()
        (entries,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "quarry=quarry._command:main" in packed.read(entries).decode().replace(" ", "")
    assert "quarry/py.typed" in names
    assert "quarry/_quarry.pyi" in names
    for header in ("Description-Content-Type: text/markdown", "License-Expression: MIT OR"):
        assert header in text
    assert text.count("\nClassifier: ") > 10
    assert text.count("\nProject-URL: ") >= 4
    # The page of a registry has no files beside it.
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links), links
