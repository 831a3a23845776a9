"""The notebooks run, and show what they are about."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def run(name):
    """Texts and the number of pictures that a notebook shows."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    data = [output["data"] for output in outputs if "data" in output]
    kinds = ("text/markdown", "text/plain")
    texts = [of[kind] for of in data for kind in kinds if kind in of]
    texts += [output["text"] for output in outputs if output.output_type == "stream"]
    return "\n".join(texts), sum("image/png" in of for of in data)


def test_every_notebook_is_tested():
    found = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    assert found == {
        "before-the-upgrade",
        "64k-or-4k-pages",
        "what-7.0-costs",
        "which-sheaf-capacity",
    }


def test_before_the_upgrade():
    text, pictures = run("before-the-upgrade")
    assert pictures == 1
    for part in ("6.12-snapshot", "predicted_percent", "sheaf_capacity=4", "quarry.version"):
        assert part in text, part


def test_pages():
    text, pictures = run("64k-or-4k-pages")
    assert pictures == 1
    for part in ("<quarry.Recording kv", "page_size", "65536", "slub_max_order=0"):
        assert part in text, part


def test_costs_are_what_their_page_says():
    text, _ = run("what-7.0-costs")
    page = (NOTEBOOKS / "../../docs/studies/what-7.0-costs.md").resolve().read_text()
    lines = [line for line in text.splitlines() if line.startswith(("| ", "* ", "Both boots"))]
    assert len(lines) > 40
    for line in lines:
        assert line in page, line


def test_sheaves():
    text, pictures = run("which-sheaf-capacity")
    assert pictures == 1
    for part in (
        "| hackbench | 16 | 1 |",
        "| tbench | 2 | 1 |",
        "| by CPUs |",
        "pool_workqueue",
        "| 10 full, ns | 0 full | 40 full |",
        "| 1024 | 16 |",
    ):
        assert part in text, part
    assert "nan |" not in text
    assert "| nan" not in text
