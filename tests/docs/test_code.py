"""What pages, docstrings and comments say about the code: names, files, layers and constants are those of the code."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import nestcode
from nestcode import Index, storage
from nestcode.coders import Coder, LinearCoder, ResidualCoder, auto, codebooks, sampling, scalar_quantizer
from nestcode.coders.base import BaseLayout, Layout
from nestcode.coders.cell import kmeans
from nestcode.coders.residual import model as residual
from nestcode.container import layout
from nestcode.images import bitplanes, lapped_dct, refiner
from nestcode.images import format as image_format
from nestcode.images import stream as image_stream
from nestcode.index import buffer, compaction, live, manifest, store
from nestcode.search import graph
from nestcode.search import scorer as scorer_module
from nestcode.search.preparation import scorer_for
from nestcode.serve import batching
from nestcode.stores import LmdbStore, PostgresStore, neighborhood
from nestcode.streams import format as stream_format
from nestcode.streams import payload
from nestcode.training import optimizers
from nestcode.training.runtime import sampler

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "nestcode"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOREIGN = {  # names of other projects that pages mention
    "IDMap2",
    "IDSelector",
    "IndexHNSWFlat",
    "OMP_WAIT_POLICY",
    "mapInArrow",
    "num_gpus",
}


FOLDERS = ("benchmarks", "cpp", "docs", "examples", "src", "tests", "tools", "web")


@cache
def files() -> list[str]:
    """Return the files of the repository."""
    paths = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return [path.relative_to(ROOT).as_posix() for path in paths if path.is_file()]


@cache
def words_of_code() -> set[str]:
    """Return all identifiers of the code and the words in its strings, without comments, docstrings and these tests."""
    words = set()
    sources = [name for name in files() if re.search(r"\.(py|pyi|[ch]pp|js|toml)$|^Makefile$", name)]
    for path in (ROOT / name for name in sources if not name.startswith("tests/docs/")):
        comments = r"\"\"\".*?\"\"\"|#[^\n]*" if path.suffix in (".py", ".pyi") else r"//[^\n]*|/\*.*?\*/"
        words |= set(re.findall(r"\w+", re.sub(comments, "", path.read_text(), flags=re.DOTALL)))
    return words | {Path(name).stem for name in files()}


def unknown_names(text: str) -> set[str]:
    """Return the identifiers in backticks on a page that the code does not have.

    An identifier has an underscore or a capital letter beside small ones: `keep_prefix`, `Codes`, `NestedLoss`.
    """
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = [re.sub(r'"[^"]*"', "", span) for span in re.findall(r"`([^`]+)`", prose) if "*" not in span]
    names = {name for span in spans for name in re.findall(r"(?<![\w…-])[A-Za-z_]\w*", span)}
    return {name for name in names if re.search(r"[a-z]_|[A-Z][a-z]|[a-z][A-Z]", name)} - words_of_code() - FOREIGN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_names_in_backticks_are_names_of_the_code(page: Path) -> None:
    assert unknown_names(page.read_text()) == set()


def test_unknown_names_are_noticed() -> None:
    text = (
        '`Codes`, `odd_name(OldCoder)`, `IndexHNSWFlat`, `memory="Odd_word"`, `word`, Odd_prose\n```\n`Left_out`\n```\n'
    )
    assert unknown_names(text) == {"odd_name", "OldCoder"}


def missing_files(text: str) -> set[str]:
    """Return the source files that a text names and that no folder has: `plan.py`, `search/plan.py`."""
    named = set(re.findall(r"(?<![\w/.*{<-])[a-z_][\w/]*\.(?:py|hpp|cpp|md)\b", text))
    return {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files())}


def test_files_that_docstrings_comments_and_pages_name_exist() -> None:
    sources = [
        ROOT / name
        for name in files()
        if re.match(r"((src|cpp|web|benchmarks)/.*\.(py|hpp|cpp|js)|docs/.*\.md)$", name)
    ]
    assert {f"{path.name}: {name}" for path in sources for name in missing_files(path.read_text())} == set()
    assert missing_files("(scorer.py) `search/adc.py`, tests/odd.py and index/adc.py") == {
        "tests/odd.py",
        "index/adc.py",
    }


def misplaced_names(text: str) -> set[str]:
    """Return the names that a page places in a file, "`Name` of `cli/fit.py`", which does not have them."""
    places = re.findall(r"`([\w.]+)` (?:of |\()((?:(?: and of )?`[\w/]+\.(?:py|hpp)`)+)", text)
    return {
        f"{name} of {file}"
        for name, where in places
        for file in re.findall(r"[\w/]+\.\w+", where)
        for known in [next(known for known in files() if f"/{known}".endswith(f"/{file}"))]
        if not re.search(rf"\b{name.rpartition('.')[2]}\b", (ROOT / known).read_text())
    }


def test_names_are_in_the_files_that_pages_place_them_in() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert set().union(*(misplaced_names(page.read_text()) for page in PAGES)) == set()
    assert misplaced_names(page.replace("`scorer_for` of", "`scorer_of` of")) == {"scorer_of of search/preparation.py"}
    assert misplaced_names("`nope` of `tests/test_lengths.py` and of `tests/nn/test_losses.py`") == {
        "nope of tests/test_lengths.py",
        "nope of tests/nn/test_losses.py",
    }


def rows_of(text: str, header: str) -> list[list[str]]:
    """Return the cells of the rows of the table that begins with this header."""
    _, _, table = text.partition(f"{header}\n")
    lines = table.split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_packages_has_the_layers_of_the_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.removeprefix("nestcode.") for layer in reversed(contracts[0]["layers"])]
    rows = rows_of((ROOT / "docs" / "architecture.md").read_text(), "| package | contents | needs |")
    listed = [name.removesuffix(".py").strip("/") for row in rows for name in re.findall(r"`([\w./]+)`", row[0])]
    assert [name for name in listed if name not in ("_core", "cpp")] == layers
    assert set(layers) == {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {
        "__init__",
        "__main__",
    }


def test_the_table_of_packages_names_modules_that_they_have() -> None:
    for package, contents, _ in rows_of(
        (ROOT / "docs" / "architecture.md").read_text(), "| package | contents | needs |"
    ):
        folder = PACKAGE / package.strip("`/")
        for name in re.findall(r"`([a-z_]+)`(?!:)", contents) if folder.is_dir() else ():
            assert (folder / f"{name}.py").exists() or name in words_of_code(), f"{package}: {name}"
        for name in re.findall(r"`([a-z_]+(?:/|\.py))`", contents):
            assert (folder / name).exists(), f"{package}: {name}"


def test_the_architecture_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert {folder for folder in FOLDERS if f"`{folder}/" not in page} == set()


def test_pages_and_docstrings_list_every_coder() -> None:
    coders = {name for name in dir(nestcode) if name.endswith("Coder") and name != "Coder"}
    page = (ROOT / "docs" / "api" / "coders.md").read_text()
    assert {row[0].strip("`") for row in rows_of(page, "| coder | algorithm | use it for | needs |")} == coders | {
        "ImageCodec"
    }
    estimates = rows_of((ROOT / "docs" / "concepts" / "asymmetric-ranking.md").read_text(), "| coder | estimate |")
    assert {name for row in estimates for name in re.findall(r"`(\w+)`", row[0])} == coders
    assert set(re.findall(r"^    (\w+Coder) ", nestcode.coders.__doc__ or "", flags=re.MULTILINE)) == coders


def test_the_page_of_layers_gives_every_name_one_task() -> None:
    page = (ROOT / "docs" / "api" / "nn.md").read_text()
    tables = re.findall(r"^\| (`\w+`.*?) \|", page, flags=re.MULTILINE)
    shown = [name.strip() for names in re.findall(r"members: \[(.*?)\]", page) for name in names.split(",")]
    assert sorted(name for row in tables for name in re.findall(r"`(\w+)`", row)) == sorted(shown)
    assert sorted(shown) == sorted(nestcode.nn.__all__)


def test_the_docstring_of_coder_lists_what_a_subclass_implements() -> None:
    (listed,) = re.findall(r"and implement\s(.*?)\. That is", Coder.__doc__ or "", flags=re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == set(Coder.__abstractmethods__)


class Reported(LinearCoder):
    """A coder that reports a given layout."""

    def report(self, layout: Layout | None) -> "Reported":
        self.reported = layout
        return self

    def layout(self, length: int) -> Any:  # noqa: ARG002
        return self.reported


def test_the_table_of_scorers_is_the_choice_of_scorer_for() -> None:
    rows = re.findall(r"^    (\w+Layout|None) +(\w+Scorer) ", scorer_module.__doc__ or "", flags=re.MULTILINE)
    X = np.random.default_rng(0).standard_normal((300, 8))
    linear, residual = LinearCoder(width=16).fit(X), ResidualCoder(width=16).fit(X)
    coders = [linear, residual, *(Reported(width=16).fit(X).report(layout) for layout in (BaseLayout(linear), None))]
    assert dict(rows) == {
        type(coder.layout(16)).__name__.replace("NoneType", "None"): type(scorer_for(coder, 16)).__name__
        for coder in coders
    }


def cpp(file: str, name: str) -> Any:
    """Return a constant of a header of the core."""
    (value,) = re.findall(rf"\b{name} = ([^;,]+)[;,]", (ROOT / "cpp" / "nestcode" / file).read_text())
    return ast.literal_eval(value.rstrip("Ff"))


NODE_BYTES = (8 + graph.BITS // 8) * graph.DEGREE  # ids, corrections and bits of all neighbors
NODE_FILE_BYTES = 4 * graph.DEGREE + graph.BITS // 8 + 4  # rows of the neighbors, bits and corrections of the item
CODEC_BYTES = (PACKAGE / "images" / "pretrained" / "photos.coder").stat().st_size
QUOTED: list[tuple[Any, ...]] = [  # page or module, words, and the constants of the code that stand in the words
    ("format", "divided into blocks of {:,} bytes (the header excluded)", store.CHECKED),
    ("format", "and in graphs, blocks have {:,} bytes", storage.BLOCK),
    ("decisions", "blocks of {} KiB, {} in graphs, have checksums", store.CHECKED >> 10, storage.BLOCK >> 10),
    ("decisions", "Checksum blocks have {} KiB", store.CHECKED >> 10),
    ("decisions", "{:,} bytes share a checksum", store.CHECKED),
    ("format", '`"nestcode index"`, {} if a graph has nodes', manifest.VERSION),
    ("format", "(n, {}) uint32, the rows of each code's neighbors", graph.DEGREE),
    ("format", "if at least {} rows share it", cpp("prefix_tables.hpp", "crowded")),
    ("format", "block {:,} bytes of payload", layout.BLOCK),
    ("concepts/streams", "a probability model of {} kB, trained on", CODEC_BYTES // 1000),
    ("concepts/streams", "Each block of {:,} bytes has a CRC-32", layout.BLOCK),
    ("how-to/serve-streams", "a CRC-32 per block of {:,} bytes", layout.BLOCK),
    ("decisions", "{} bytes in {:,}, independent of the items' size", layout.CRC, layout.BLOCK),
    ("format", "bits 0–{} of every item", stream_format.GROUP - 1),
    ("format", "less than 1/{} of the codes", stream_format.RATIO),
    ("format", "as are all integers here: {0}; readers take 1 to {0}", image_format.VERSION),
    ("format", "| `steps` | {} integers below 2^40", bitplanes.PASSES),
    ("format", "at most {:,} characters", image_format.MAX_NAME),
    ("format", "prefilters {} pixels on each side", cpp("image_reconstruction.hpp", "kOverlap")),
    ("format", "padded to whole blocks of {0} x {0} pixels", lapped_dct.BLOCK),
    ("format", "as {} of the difference of the DC", cpp("image_reconstruction.hpp", "kGradient")),
    ("format", "for images of {} blocks or more", cpp("image_encoder.hpp", "kManyBlocks")),
    ("format", "counts {} bytes of memory for each sample of the largest image", image_stream.COEFFICIENT),
    ("format", "{} for each sample in a row of its blocks", image_stream.STRIPS),
    ("format", "concurrently as they arrive, {} for each sample", image_stream.COEFFICIENT + 2),
    ("decisions", "first encoded to {} times its share", image_stream.SPARE),
    ("decisions", "fades out toward a step of {}", cpp("image_reconstruction.hpp", "kUnfiltered")),
    ("decisions", "scaled by the step and is 0 at {:.0f}", refiner.FINEST),
    ("decisions", "slower coder must win by {:.0f} %", 100 - 100 * auto.MARGIN),
    ("concepts/ordered-bits", "slower coder must win by {:.0f} %", 100 - 100 * auto.MARGIN),
    ("decisions", "A direction takes at most {} bits", scalar_quantizer.DEPTH),
    ("how-to/choose-a-width", "takes at most {} bits", scalar_quantizer.DEPTH),
    ("decisions", "more than {:.0f} times as far from the center", sampling.FAR),
    ("decisions", "from the center as {:.1f} % of the rows", 100 - 100 * sampling.OUTLIERS),
    ("decisions", "Fewer than {:,} rows are joined by synthetic ones", sampling.FEW_ROWS),
    ("decisions", "up to {} times as long", max(codebooks.LLOYD.relaxations)),
    ("decisions", "next {:,} residuals**, {:,} after", codebooks.LLOYD.rows, residual.LATER_LLOYD.rows),
    (
        "decisions",
        "in {} iterations instead of {}",
        len(residual.LATER_LLOYD.relaxations),
        len(codebooks.LLOYD.relaxations),
    ),
    ("decisions", "From {:,} rows on only the best beams", residual.BEAM_ROWS),
    ("decisions", "Each {} bits of codebooks are refitted", residual.BLOCK),
    ("how-to/many-vectors", "a cell for about {} of the rows", kmeans.ROWS_PER_CELL),
    ("how-to/many-vectors", "up to {:,}, and trains", 1 << kmeans.MOST_CHOSEN_BITS),
    ("decisions", "each {} times its predecessor", compaction.SIZE_RATIO),
    ("decisions", "a write buffer of at most {:,} items", buffer.BUFFER_ITEMS),
    ("decisions", "Segments below {:,} items are scanned", compaction.MIN_GRAPH),
    ("how-to/graph", "a segment of {:,} items or more", compaction.MIN_GRAPH),
    ("decisions", "before reads, at most every {:.0f} ms", 1000 * live.SIZES_EVERY),
    ("reliability", "at most {:.0f} times a second", 1 / live.SIZES_EVERY),
    ("reliability", "by default {} GiB for items and {} for images", payload.LIMIT >> 30, image_stream.LIMIT >> 30),
    ("decisions", "selected with a slack of {}", cpp("graph_build.hpp", "slack")),
    ("decisions", "nearest {} of {} entry points", cpp("graph_search.hpp", "kStarts"), graph.ENTRIES),
    ("decisions", "up to {} times `ef`", cpp("graph_search.hpp", "kMostTies")),
    ("decisions", "Neighborhoods read {} leading bits", neighborhood.LEADING),
    ("decisions", "A batch of {} queries bounds", batching.BATCH),
    ("how-to/databases", "Keys have at most {:,} bits", 8 * PostgresStore.MAX_BYTES),
    ("decisions", "{} bytes an item instead of {:,}", NODE_FILE_BYTES, NODE_BYTES),
    (
        "how-to/graph",
        "node of the graph, in memory | {:,} | | the graph as files hold it | {} |",
        NODE_BYTES,
        NODE_FILE_BYTES,
    ),
    ("how-to/many-vectors", "{} in files at {} bits; up to {:,} more", NODE_FILE_BYTES, graph.BITS, NODE_BYTES),
    ("index/index.py", "up to {:,} bytes an item in memory and {} in files", NODE_BYTES, NODE_FILE_BYTES),
    ("index/index.py", "each segment of at least {:,} items", compaction.MIN_GRAPH),
    (
        "coders/auto.py",
        "fitted on {:.0f} % of a sample of at most {:,} rows",
        100 - 100 * auto.HELD_OUT,
        auto.SAMPLE_ROWS,
    ),
    ("coders/auto.py", "at no more than {} bits", auto.TRIAL_WIDTH),
    ("coders/auto.py", "up to {} of these rows are queries", auto.QUERIES),
    ("coders/cell/coder.py", "a power of two of at most {:,};", 1 << kmeans.MOST_CELL_BITS),
    ("coders/linear/coder.py", "(at most {:,} rows)", sampling.SAMPLE_ROWS),
    ("coders/residual/coder.py", "(at most {:,} rows)", sampling.TRAIN_ROWS),
    ("coders/residual/coder.py", "Fewer than {:,} rows are joined", sampling.FEW_ROWS),
    ("stores/lmdb.py", "leading bits to keep, at most {:,};", 8 * LmdbStore.MAX_BYTES),
    ("stores/postgres.py", "leading bits to keep, at most {:,};", 8 * PostgresStore.MAX_BYTES),
    ("streams/stream.py", "by default {} GiB", payload.LIMIT >> 30),
    ("streams/stream.py", "at most {} times their entropy-coded payload", stream_format.RATIO),
    ("images/refiner.py", "At a step of {:.0f} and below", refiner.FINEST),
    ("images/refiner.py", "so it does above {:,.0f},", refiner.LARGEST_STEP),
    ("training/config.py", "after a warm-up of {:.0f} % of the steps", 100 * optimizers.WARM_UP),
    ("training/config.py", "to measure errors on, at most {:,} items", sampler.MOST_HELD_OUT),
]


@pytest.mark.parametrize(("page", "words", "values"), [(page, words, values) for page, words, *values in QUOTED])
def test_pages_and_docstrings_quote_the_constants_of_the_code(page: str, words: str, values: list[Any]) -> None:
    path = PACKAGE / page if page.endswith(".py") else ROOT / "docs" / f"{page}.md"
    text = " ".join(path.read_text().split())
    assert words.format(*values) in text
    assert words.format(*(value + 1 for value in values)) not in text


def bytes_per_item(index: Index) -> dict[str, int]:
    """Return the bytes of what the tables of memory list, in whole bytes for an item."""
    parts = {"norms": 0, "neighbors": 0, "heads": 0, "places": 0, **index.nbytes_by_part()}
    sums = {
        "code": parts["codes"],
        "id": parts["ids"],
        "tree": parts["tables"] + parts["heads"] + parts["places"],
        "scanned": parts["blocks"] + parts["biases"] + parts["norms"],
        "graph": parts["neighbors"],
        "node": parts["prepared"],
    }
    return {name: round(size / len(index)) for name, size in sums.items()}


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize(("width", "scanned"), [(64, 10), (128, 18), (256, 28), (384, 28)])
def test_the_table_of_memory_is_that_of_an_index(
    width: int, scanned: int, metric: Literal["l2", "cosine"], tmp_path: Path
) -> None:
    table = (ROOT / "docs" / "how-to" / "many-vectors.md").read_text()
    assert "| 10 at 64 bits, 18 at 128, 28 at 256 and more; 4 more by cosine;" in table
    assert "| id | 4," in table
    assert "| tree | 13; in memory 1," in table
    X = np.random.default_rng(0).standard_normal((6_000, 64))
    index = Index(LinearCoder(width, metric).fit(X))
    index.add(X)
    index.save(tmp_path / "my.index")
    per_item = {
        "code": width // 8,
        "id": 4,
        "tree": 1,
        "scanned": scanned + 4 * (metric == "cosine"),
        "graph": 0,
        "node": 0,
    }
    assert bytes_per_item(index) == per_item
    assert bytes_per_item(Index.open(tmp_path / "my.index")) == per_item | {"tree": 13}


def test_the_table_of_memory_is_that_of_an_index_with_a_graph() -> None:
    table = (ROOT / "docs" / "how-to" / "graph.md").read_text()
    assert "| code of 384 bits, id and tree | 53; 65 in files |" in table
    assert "| what lists scan | 28; 32 by cosine |" in table
    X = np.random.default_rng(0).standard_normal((6_000, 128))
    index = Index(LinearCoder(width=graph.BITS).fit(X), graph=True)
    index.add(X)
    index.wait()
    found = bytes_per_item(index)
    assert found["code"] + found["id"] + found["tree"] == 53
    assert found["scanned"] == 28
    assert found["graph"] == NODE_FILE_BYTES - 4 * graph.DEGREE  # the neighbors lie in the nodes
    assert found["node"] == pytest.approx(NODE_BYTES, rel=0.01)  # and the entry points


def test_the_page_of_the_index_shows_all_of_it() -> None:
    page = (ROOT / "docs" / "api" / "index-and-search.md").read_text()
    (shown, *_) = re.findall(r"members: \[(.*?)\]", page)
    assert sorted(shown.split(", ")) == sorted(name for name in dir(Index) if not name.startswith("_"))
