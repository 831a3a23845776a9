import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def snapshots():
    """Snapshots of real kernels, oldest release first."""
    folder = ROOT / "crates/quarry-snapshot/tests/data/drgn"
    found = [folder / f"{release}-snapshot.json.gz" for release in ("5.10", "6.1", "6.12", "7.3")]
    assert all(path.exists() for path in found)
    return found


@pytest.fixture
def fleet(snapshots, tmp_path):
    """A folder `hosts` with a copy of each snapshot."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    for path in snapshots:
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session")
def command():
    """The answer of the command in JSON."""
    program = os.environ.get("QUARRY_COMMAND")
    assert program, "QUARRY_COMMAND names the program quarry; cargo xtask python sets it"

    def ask(*args):
        words = [program, *map(str, args), "--json"]
        done = subprocess.run(words, capture_output=True, check=True, text=True)
        return json.loads(done.stdout)

    return ask
