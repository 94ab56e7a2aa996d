"""Benchmarks and examples run.

They run in this process: starting Python and importing PyTorch takes longer than most of them.
"""

import doctest
import importlib
import json
import runpy
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from nestcode.data import digits

ROOT = Path(__file__).parents[1]
BENCHMARKS, EXAMPLES = ROOT / "benchmarks", ROOT / "examples"
ELSEWHERE = {"engine.py": "test_the_engine_benchmark", "cluster.py": "tests/scale/on_ray.py"}  # where these run
Run = Callable[..., str]

pytestmark = pytest.mark.filterwarnings("ignore")  # of data that is too small


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a script as `python script arguments` would, and return what it prints."""

    def run(script: Path, *arguments: str | Path) -> str:
        monkeypatch.syspath_prepend(script.parent)
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    return run


SCRIPTS = [path for path in sorted(BENCHMARKS.glob("[a-z]*.py")) if path.name not in ELSEWHERE]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_benchmarks_run_and_save_their_results(script: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    assert run(script, "--quick", "--json", out)
    facts = json.loads(out.read_text())
    assert facts["rows"]
    assert facts["versions"]["nestcode"]


def test_doctests_of_shared_benchmark_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    results = [doctest.testmod(importlib.import_module(path.stem)) for path in BENCHMARKS.glob("_*.py")]
    assert sum(result.attempted for result in results) > 10
    assert not any(result.failed for result in results)


@pytest.mark.parametrize("distance", ["angular", "euclidean"])
def test_the_search_benchmark_reads_hdf5_of_ann_benchmarks(distance: str, run: Run, tmp_path: Path) -> None:
    file, out, figure = tmp_path / "digits.hdf5", tmp_path / "figures.json", tmp_path / "fronts.png"
    rows, _ = digits()
    with h5py.File(file, "w") as data:
        data["train"], data["test"] = rows[:-50], rows[-50:]
        data.attrs["distance"] = distance
    options = ["--quick", "--tables", "speed", "--ours", "256", "--peers", "usearch"]
    run(BENCHMARKS / "search.py", *options, "--hdf5", file, "--json", out, "--figure", figure)
    saved = json.loads(out.read_text())["rows"]
    assert {row["data"].split(",")[0] for row in saved} == {"digits"}
    assert {row["method"] for row in saved} > {"usearch f32", "usearch i8"}
    assert all(row["recall"] > 0.9 for row in saved if row["method"] == "usearch f32" and row.get("front"))
    assert figure.stat().st_size > 10_000


def test_the_search_benchmark_reads_sentences_and_names_missing_peers(run: Run, tmp_path: Path) -> None:
    rows = digits()[0] - 0.5
    (tmp_path / "sentences.txt").write_text("\n".join(f"The sentence number {i} of many" for i in range(len(rows))))
    np.save(tmp_path / "sentences.npy", rows.astype(np.float16))  # what embedding the sentences would write
    np.save(tmp_path / "sentences-keywords-50.npy", np.roll(rows[-50:], 1, axis=1))
    out = tmp_path / "figures.json"
    options = ["--quick", "--tables", "speed", "--ours", "256", "--peers", "HGraph", "--at-once", "2"]
    printed = run(BENCHMARKS / "search.py", *options, "--sentences", tmp_path, "--json", out)
    saved = json.loads(out.read_text())["rows"]
    assert {row["data"].split(", 1,")[0] for row in saved if "data" in row} == {
        "sentences, cosine",
        "sentences, cosine, keywords as queries",
    }
    missing = {row["method"]: row["missing"] for row in saved if "missing" in row}
    assert set(missing) == (set() if find_spec("pyvsag") else {"VSAG HGraph, 32 links"})
    assert all(f"Not measured: {name}: {reason}" in printed for name, reason in missing.items())
    assert "compressed: sentences, cosine, 1,000 items, 50 queries: nothing was measured" in printed


def test_the_engine_benchmark_compares_runs_and_names_the_slowest_first(run: Run, tmp_path: Path) -> None:
    old, slow, new, both = (tmp_path / f"{name}.json" for name in ("old", "slow", "new", "both"))
    run(BENCHMARKS / "engine.py", "--quick", "--json", old)
    facts = json.loads(old.read_text())
    assert facts["versions"]["nestcode"]
    assert {row["filter"].split()[0] for row in facts["rows"]} == {"none", "random", "nearest", "farthest"}
    for row in facts["rows"]:
        row["us"] *= 2
    slow.write_text(json.dumps(facts))
    facts["rows"][7]["us"] *= 3
    facts["rows"][5]["recall@k"] -= 0.25
    new.write_text(json.dumps(facts))
    printed = run(BENCHMARKS / "engine.py", "--compare", f"{slow},{old}", f"{new},{slow}", "--json", both)
    assert "Recall fell" in printed  # in one of the new runs
    assert {row["ratio"] for row in json.loads(both.read_text())["rows"]} == {2.0}
    printed = run(BENCHMARKS / "engine.py", "--compare", old, new, "--json", both)
    assert "Recall fell" in printed
    first, second, *_ = json.loads(both.read_text())["rows"]
    assert (first["ratio"], second["ratio"]) == (6.0, 2.0)


def test_only_nested_losses_order_the_classifier() -> None:
    example: Any = runpy.run_path(str(EXAMPLES / "classifier.py"))
    accuracy = {
        name: dict(zip(example["SHOWN"], example["accuracy_by_length"](*method, epochs=15, seed=0), strict=True))
        for name, method in example["METHODS"].items()
    }
    assert accuracy["nested"][4] > accuracy["ordinary"][4] + 0.1
    assert accuracy["Matryoshka"][8] > accuracy["ordinary"][8] + 0.1
    assert accuracy["nested"][64] > 0.9
    assert accuracy["ordinary"][64] > 0.9


def test_only_nested_dropout_orders_the_autoencoder() -> None:
    example: Any = runpy.run_path(str(EXAMPLES / "autoencoder.py"))
    nested, ordinary = (
        dict(zip(example["SHOWN"], example["errors_by_length"](nested=nested, epochs=20), strict=True))
        for nested in (True, False)
    )
    components = dict(zip(example["SHOWN"], example["errors_of_components"](), strict=True))
    assert all(nested[k] < ordinary[k] / 1.2 for k in (1, 2, 4, 8, 16))
    assert nested[8] < components[8]  # a network beats a linear model
    assert ordinary[32] < ordinary[16] / 2  # the ordinary model is trained well


def test_a_prefix_of_the_tokenizers_codes_decodes_to_its_first_tokens() -> None:
    example: Any = runpy.run_path(str(EXAMPLES / "image_tokenizer.py"))
    images = example["read_data"](None)[0][:60]
    model = example["train"](images, nested=True, epochs=2, patch=2, tokens=4, dim=16, depth=1)
    codes = model.quantize.codes(model.encode(images))
    for kept in (1, 3):
        decoded = model.decode(model.quantize.decode(codes.prefix(kept * 15)))
        np.testing.assert_allclose(decoded.detach(), model(images, kept).detach(), rtol=1e-4, atol=1e-5)


def test_fine_tuning_by_length_improves_recall() -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    rng = np.random.default_rng(0)
    words = [f"word{number}" + "x" * (number % 7) for number in range(40)]
    sentences = [" ".join(rng.choice(words, 6, replace=False)) for _ in range(200)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    example: Any = runpy.run_path(str(EXAMPLES / "matryoshka_text.py"))
    before = example["recall_by_length"](model, sentences[:100], 50)
    tuned = example["fine_tune"](model, sentences[100:] * 5, example["METHODS"]["nested"], batch=50, lr=0.05)
    after = example["recall_by_length"](tuned, sentences[:100], 50)
    assert np.mean(list(after.values())) > np.mean(list(before.values()))
    assert example["keywords"]("a very long sentence") == "very long sentence"


def test_text_search_has_higher_recall_in_fewer_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = run(EXAMPLES / "text_search.py", "--texts", "100")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    recall = {row[0]: [float(cell.replace("–", "nan").partition("/")[0]) for cell in row[1:]] for row in rows}
    nested, signs, bytes_each = recall["nested codes"], recall["ubinary, rescored"], recall["int8"]
    assert all(ours > theirs for ours, theirs in zip(nested[:3], signs[:3], strict=True))
    assert all(ours > theirs for ours, theirs in zip(nested[:4], bytes_each[:4], strict=True))
    assert bytes_each[4] > 0.97
    assert nested[:4] == sorted(nested[:4])
    assert all(f"{question}?" in out for question in ("copy a whole folder", "make data smaller"))
