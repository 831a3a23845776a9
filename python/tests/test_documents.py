"""Examples of docstrings and of documents run as they stand."""

import doctest
import inspect
import re
import shutil

import pytest
from conftest import ROOT

import quarry


def documented():
    """Docstrings of the package with examples, by name."""
    for name in quarry.__all__:
        one = getattr(quarry, name)
        members = vars(one) if inspect.isclass(one) else []
        found = [(name, one), *((f"{name}.{member}", getattr(one, member)) for member in members)]
        for full, of in found:
            text = inspect.getdoc(of) or ""
            if ">>>" in text:
                yield full, text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with what documents name: snapshots and a fleet."""
    of = "crates/quarry-lab/tests/data/6.17-to-7.3-x86_64-4k"
    shutil.copy(ROOT / of / "6.17.13.json.gz", tmp_path / "host.json")
    (tmp_path / "hosts").mkdir()
    for release in ("6.17.13", "7.3"):
        found = sorted((ROOT / of).glob(f"{release}*.json.gz"))
        shutil.copy(found[0], tmp_path / "hosts" / f"{release}.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "text"), list(documented()))
def test_examples_of_docstrings(name, text, folder):
    test = doctest.DocTestParser().get_doctest(text, {"quarry": quarry}, name, name, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_docstrings_have_examples():
    names = {name for name, _ in documented()}
    calls = {"Snapshot.read", "Snapshot.what_if", "Recording.open", "Recording.replay"}
    assert calls | {"Recording.callers", "Table", "geometry", "look", "run"} <= names


def blocks():
    """Blocks of Python of all documents, with those before it on the page.

    What needs more than files, and says so in its first line, is compiled alone.
    """
    found = []
    pages = [ROOT / "README.md", ROOT / "python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        before = []
        for match in re.finditer(
            r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            code = match.group(1)
            name = f"{page.relative_to(ROOT)}-{len(found)}"
            if code.startswith("# needs "):
                compile(code, name, "exec")
            else:
                before.append(code)
            found.append((name, list(before)))
    return found


def test_documents_have_blocks():
    pages = {name.rsplit("-", 1)[0] for name, _ in blocks()}
    assert {"docs/GUIDE.md", "docs/fleet.md", "python/README.md"} <= pages


@pytest.mark.parametrize(("name", "code"), blocks())
def test_blocks_of_documents(name, code, folder):
    names = {}
    exec(compile("\n".join(code), name, "exec"), names)
