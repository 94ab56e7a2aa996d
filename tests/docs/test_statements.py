"""The checker of comments in snippets: true statements pass, false ones are noticed, other comments are left alone."""

import ast
import doctest
from pathlib import Path

import numpy as np
import pytest

from tests.docs.statements import STATED_IN_WORDS, comments_of, hidden_values, numbers_of, run, statement_of

PACKAGE = Path(__file__).parents[2] / "src" / "nestcode"

TRUE = [
    "1 + 1  # 2",
    "1797  # 1,797",
    "2 / 3  # 0.67",
    "2 / 3  # about 0.6",
    "2 / 3  # more than .6",
    "2 / 3  # of everything: less than 0.7; it may be lower",
    "np.zeros((3, 2))  # (3, 2): one row for each item",
    "np.zeros(4).shape  # (4,)",
    "x = np.zeros((3, 2))  # (3, 2)",
    "a, b = 1, 2  # 1, 2",
    "400, 71.5  # bytes: 400, about 72",
    "[0.752, 0.91, 0.96]  # about .75, .9, .95",
    "'a' + 'b'  # 'ab'",
    "np.dtype('uint8'), 3 in [3]  # 'uint8', True",
    "x = np.zeros((3, 2)); y = x.T[:3]\nx.sum()  # x, x.copy(): (3, 2)",
    "for i in (1, 2):\n    print(i, f'{i / 3:.3f}')  # about .3, .7",
    "for i in (1, 2):\n    i // 3  # 0",
    "def half(x):\n    y = x / 2  # 4\n    return y\nhalf(8)",
    "sum(\n    [1, 2]\n)  # 3",
]

FALSE = [
    ("1 + 1  # 3", "3 is stated, the value is 2"),
    ("2 / 3  # 0.66", "0.66 is stated, the value is 0.66666"),
    ("2.4  # 2", "2 is stated, the value is 2.4"),
    ("0.952  # about 0.8", "about 0.8 is stated, the value is 0.952"),
    ("0.75  # about 0.80", "about 0.80 is stated, the value is 0.75"),
    ("0.6  # more than 0.6", "more than 0.6 is stated"),
    ("0.7  # less than 0.7", "less than 0.7 is stated"),
    ("float('nan')  # about 0.5", "the value is nan"),
    ("np.zeros((3, 2))  # (2, 3)", "(2, 3) is stated, the value is an array of shape (3, 2)"),
    ("x = np.zeros(4)  # x, x[1:]: (4,)", "an array of shape (4,), an array of shape (3,)"),
    ("'ab'  # 'abc'", "'abc' is stated, the value is ab"),
    ("[0.7, 0.9]  # about .7, .9, .9", "the value is 0.7, 0.9"),
    ("for i in (1, 2):\n    print(i, i / 4)  # .25, .75", "the value is 0.25, 0.5"),
    ("import math  # 3", "3 is stated of a line that computes nothing"),
    ("if False:\n    1 + 1  # 2", "2 is stated of a line that computes nothing"),
]

WORDS = [
    "the first 32 bits of codes",
    "for embeddings: metric='cosine'",
    "None: all cores",
    "yours",
    "(batch, channels)",
]


@pytest.mark.parametrize("source", TRUE)
def test_true_statements_pass(source: str) -> None:
    assert any(statement_of(comment, line) for line, comment in comments_of(source))
    assert run(source, {"np": np}) == []


@pytest.mark.parametrize(("source", "message"), FALSE)
def test_false_statements_are_noticed(source: str, message: str) -> None:
    (problem,) = run(source, {"np": np}, "page.md", first_line=7)
    assert problem.startswith(f"page.md:{6 + len(source.splitlines())}: ")
    assert message in problem


@pytest.mark.parametrize("comment", WORDS)
def test_other_comments_state_nothing(comment: str) -> None:
    assert statement_of(comment, 1) is None
    assert run(f"x = 5  # {comment}", {}) == []


def test_snippets_run_once_and_keep_their_variables() -> None:
    namespace: dict[str, object] = {"calls": []}
    run("x = calls.append(1) or len(calls)  # 1\nprint(calls.append(2) or len(calls))  # 2", namespace)
    assert (namespace["x"], namespace["calls"]) == (1, [1, 2])


def test_values_in_words_are_noticed() -> None:
    """Numbers of the code may be repeated; other numbers, shapes and qualified numbers must be statements."""
    source = "f(64, 5_000, 'no. 7')\ng()  # {}"
    known = numbers_of(source)
    assert known == {64, 5000, 7}
    for comment in ("the first 64 bits", "of 5,000 bytes or 7", "recall@10 as float16", "64 bits: about 0.9", "x: 3"):
        assert hidden_values(source.format(comment), known) == []
    for comment in (
        "1,797 vectors",
        "recall is .9",
        "found about 64",
        "rows of (64, 5)",
        "3 bytes: 0.9",
        "9; of 8 bits",
    ):
        assert hidden_values(source.format(comment), known) == [comment]


def test_comments_in_docstrings_state_no_values() -> None:
    """The output of an example states them, and doctest compares it."""
    stated = {
        f"{path.relative_to(PACKAGE)}: {comment}"
        for path in PACKAGE.rglob("*.py")
        for comment in docstring_comments(path.read_text())
        if statement_of(comment, 1) or STATED_IN_WORDS.search(comment)
    }
    assert stated == set()
    assert list(docstring_comments('def f():\n    """Add.\n\n    >>> 1 + 1  # about 2\n    2\n    """')) == ["about 2"]


def docstring_comments(source: str) -> list[str]:
    """Return the comments in the examples of all docstrings of a module."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    parse = doctest.DocTestParser().get_examples
    examples = [example for text in docstrings if text and ">>>" in text for example in parse(text)]
    return [comment for example in examples if "#" in example.source for _, comment in comments_of(example.source)]
