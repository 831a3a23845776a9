"""Libraries of data frames take results and events as they are."""

import concurrent.futures
import json
import multiprocessing
import pickle
import subprocess
import sys

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quarry


@pytest.fixture(scope="module")
def table(snapshots):
    return quarry.Snapshot.read(snapshots[1]).what_if(
        release=["6.12", "7.3"], page_size=[4096, "64k"]
    )


def test_every_library_takes_a_result(table):
    arrow = pa.table(table)
    assert arrow.num_rows == len(table) == 4
    assert arrow.column_names == table.columns
    assert arrow.to_pylist() == table.to_dicts()
    frame = pd.DataFrame.from_arrow(table)
    assert list(frame["predicted_bytes"]) == table["predicted_bytes"]
    assert pl.DataFrame(table).to_dicts() == table.to_dicts()
    result = table  # DuckDB finds a variable by its name.
    rows = duckdb.sql("select max(predicted_bytes) from result").fetchall()
    assert rows == [(max(result["predicted_bytes"]),)]


def test_the_schema_says_where_rows_come_from(table, snapshots):
    schema = pa.schema(table)
    notes = {key.decode(): value.decode() for key, value in schema.metadata.items()}
    assert notes == table.notes
    assert notes["quarry.version"] == quarry.__version__
    assert notes["quarry.input"] == str(snapshots[1])
    assert json.loads(notes["quarry.asked"])["release"] == ["6.12", "7.3"]
    assert "to" in notes["quarry.known_errors_percent"]
    about = schema.field("predicted_bytes").metadata[b"about"].decode()
    assert about == table.about["predicted_bytes"] != ""


def test_no_package_is_needed(snapshots):
    code = (
        "import quarry, sys\n"
        f"table = quarry.Snapshot.read({str(snapshots[1])!r}).what_if(release='7.3')\n"
        "table.__arrow_c_stream__(), repr(table), table._repr_html_(), table.to_dicts()\n"
        "found = {'pyarrow', 'pandas', 'polars', 'numpy', 'tqdm'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_table_shows_itself(table):
    text = repr(table)
    for told in ("predicted", "change", "9 in 10", "sheaf@7.3", "64 KiB", "4 rows, "):
        assert told in text
    assert max(map(len, text.splitlines())) <= 80
    html = table._repr_html_()
    assert html.count("<tr>") == 5
    assert 'title="Bytes of ' in html
    assert "9 in 10 from" in html


def test_rows_and_columns(table):
    assert "predicted_bytes" in table
    assert [row["page_size"] for row in table] == table["page_size"]
    assert table[0] == table.to_dicts()[0]
    assert table[-1] == table.to_dicts()[3]
    assert table[1:3] == table.to_dicts()[1:3]
    assert table[::-2] == table.to_dicts()[::-2]
    with pytest.raises(quarry.UsageError, match="nearest column is predicted_bytes"):
        table["predicted_byte"]
    for row in (4, -5, 2**70):
        with pytest.raises(IndexError, match=f"row {row}"):
            table[row]
    with pytest.raises(TypeError, match="a name, a number or a slice"):
        table[1.5]


def test_libraries_by_name(table):
    assert table.to_arrow().equals(pa.table(table))
    assert list(table.to_pandas()["predicted_bytes"]) == table["predicted_bytes"]
    assert table.to_polars().equals(pl.DataFrame(table))


def double(table):
    return [2 * row["predicted_bytes"] for row in table]


def test_tables_go_to_other_processes(table, snapshots):
    looked = quarry.look(*snapshots[:2])
    tables = [table, looked.summary, looked.caches, looked.growth, looked.what_ifs]
    for one in [*tables, quarry.look(snapshots[0]).what_ifs, quarry.Recording.open("kv").callers()]:
        again = pickle.loads(pickle.dumps(one))
        assert again.to_dicts() == one.to_dicts()
        assert (again.runs, again.about, again.notes) == (one.runs, one.about, one.notes)
        assert (repr(again), again._repr_html_()) == (repr(one), one._repr_html_())
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(double, table).result() == double(table)


def test_a_table_is_written_as_parquet(table, tmp_path):
    path = tmp_path / "rows.parquet"
    table.write_parquet(path)
    assert pq.read_table(path).to_pylist() == table.to_dicts()
    with pytest.raises(quarry.UsageError, match="exists"):
        table.write_parquet(path)
    table.write_parquet(path, force=True)


@pytest.mark.parametrize("of", ["snapshot", "recording", "events", "look"])
def test_what_is_not_pickled_says_what_to_send(of, snapshots):
    recording = quarry.Recording.open("kv")
    made = {
        "snapshot": quarry.Snapshot.read(snapshots[0]),
        "recording": recording,
        "events": recording.events(),
        "look": quarry.look(snapshots[0]),
    }[of]
    with pytest.raises(TypeError, match="pickled: send"):
        pickle.dumps(made)


def test_events_are_those_of_the_file(tmp_path):
    recording = quarry.Recording.open("kv")
    events = pa.table(recording.events())
    assert events.num_rows == len(recording) == len(recording.events())
    assert events.column_names == recording.events().columns
    path = tmp_path / "kv.parquet"
    made = quarry.Recording.from_arrow(recording.events(), path)
    told = pq.read_table(path)
    for name in events.column_names:
        column = events[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if name != "page":  # Which places are fresh is found again.
            assert column.to_pylist() == told[name].to_pylist(), name
    assert made.kernel == recording.kernel
    assert pl.DataFrame(recording.events()).height == len(recording)


def strip(runs):
    for run in runs:
        del run["events_per_second"]
    return runs


def frames():
    recording = quarry.Recording.open("kv")
    yield "pyarrow", pa.table(recording.events())
    yield "polars", pl.DataFrame(recording.events())
    yield "pandas", pd.DataFrame.from_arrow(recording.events())


@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas"])
def test_events_of_a_frame_are_a_recording(library):
    frame = dict(frames())[library]
    recording = quarry.Recording.open("kv")
    made = quarry.Recording.from_arrow(frame, like=recording)
    assert (made.name, made.kernel) == ("<events>", recording.kernel)
    options = {"design": "slub", "page_size": "4k", "cpus": 4, "pages": "off", "empty": True}
    own = recording.replay(**options)
    assert strip(made.replay(**options).runs) == strip(own.runs)


def test_a_part_of_the_events_is_a_recording():
    events = pl.DataFrame(quarry.Recording.open("kv").events())
    half = events.head(len(events) // 2)
    made = quarry.Recording.from_arrow(half)
    assert (len(made), made.kernel) == (len(half), None)
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        quarry.Recording.from_arrow([1])
    with pytest.raises(quarry.Error, match="object"):
        quarry.Recording.from_arrow(events.drop("object"))
