"""Attributes on the command line: tables are read, conditions filter, columns are shown."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from nestcode import Index, LinearCoder
from tests.cli.running import nestcode_command


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_hits_of_a_condition_have_their_columns(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    np.save("X.npy", X)
    np.save("Q.npy", X[:2])
    LinearCoder(width=24).fit(X).save("my.coder")
    table = pa.table({"lang": ["en", "de", "fr"] * 20, "title": [f"item {i}" for i in range(60)]})
    if kind == "csv":
        pyarrow.csv.write_csv(table, "table.csv")
    else:
        pyarrow.parquet.write_table(table, "table.parquet")
    build = ["index", "build", "X.npy", "--coder", "my.coder", "-o", "my.index", "--attributes"]
    assert nestcode_command(*build, f"table.{kind}").returncode == 0
    search = ["search", "my.index", "Q.npy", "-k", "2", "--filter", "lang = 'en'", "--columns", "title,lang"]
    lines = [json.loads(line) for line in nestcode_command(*search, "--json").stdout.splitlines()]
    assert lines[0]["ids"][0] == 0
    for line in lines:
        assert [row["title"] for row in line["attributes"]] == [f"item {i}" for i in line["ids"]]
        assert {row["lang"] for row in line["attributes"]} == {"en"}
    hybrid = [*search, "--text", "33!", "--json"]
    for line in nestcode_command(*hybrid, "--text-column", "title").stdout.splitlines():
        assert json.loads(line)["ids"][0] == 33
    assert "this index has 2: lang, title: name one" in " ".join(nestcode_command(*hybrid).stderr.split())
    alone = nestcode_command(*search, "--text-column", "title")
    assert "--text-column needs --text" in " ".join(alone.stderr.split())
    shown = nestcode_command(*search).stdout
    assert "title" in shown
    assert "item 0" in shown
    wrong = nestcode_command(*search[:-1], "year")
    assert wrong.returncode != 0
    assert "a column must be one that the index has, lang, title, got 'year'" in " ".join(wrong.stderr.split())
    assert "must be a .parquet or .csv file" in " ".join(nestcode_command(*build, "X.npy", "-f").stderr.split())
    chosen = nestcode_command("index", "build", "X.npy", "-o", "other.index", "--attributes", f"table.{kind}")
    assert chosen.returncode == 0
    found = nestcode_command("search", "other.index", "X.npy", "--k", "1", "--filter", "lang = 'en'", "--json")
    assert found.returncode == 0


def test_items_are_added_with_their_attributes_and_recall_is_that_of_a_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((80, 6)).astype(np.float32)
    coder = LinearCoder(width=24).fit(X)
    index = Index(coder, vectors="float16")
    index.add(X[:40], attributes={"year": np.arange(40)})
    index.save("my.index")
    np.save("more.npy", X[40:])
    pyarrow.csv.write_csv(pa.table({"year": np.arange(40, 80)}), "more.csv")
    pyarrow.csv.write_csv(pa.table({"month": np.arange(40)}), "other.csv")
    add = ["index", "add", "my.index", "more.npy", "--attributes"]
    assert nestcode_command(*add, "more.csv").returncode == 0
    assert Index.open("my.index").matching("year >= 60").tolist() == list(range(60, 80))
    assert "name it to index.add_columns first" in " ".join(nestcode_command(*add, "other.csv").stderr.split())
    assert "there is no file none.csv" in " ".join(nestcode_command(*add, "none.csv").stderr.split())
    assert len(Index.open("my.index")) == 80
    for command in ("evaluate", "tune"):
        found = nestcode_command(command, "my.index", "more.npy", "--filter", "year < 50", "-k", "3", "--json")
        assert json.loads(found.stdout)["recall"] > 0.8
        wrong = nestcode_command(command, "my.index", "more.npy", "--filter", "yaer < 50")
        assert wrong.returncode != 0
        assert "a column must be one that the index has, year, got 'yaer'" in " ".join(wrong.stderr.split())
