"""Statements: the values that comments in snippets state, compared with what the snippets compute.

A comment states values where it consists of them, alone or between a label and an explanation:

    comment = [label ": "] value {", " value} [(":" | ";") " " explanation]
    value   = ["about " | "more than " | "less than "] (number | shape | 'string' | True | False)

    len(codes)                              # 500
    index.evaluate(queries).recall          # codes only: about 0.77
    coder.decode(codes)                     # (5, 432): what the codes decode to
    hits = index.search(queries, k=10)      # hits.ids, hits.distances: (100, 10)
    vector.nbytes, index.nbytes / n         # 400, about 72

The values are those of the line's expression, of the variable that it assigns or of the last argument of its `print`;
in a loop, one for each time that the line runs. Where the label is made of names of the snippet (`hits.ids`), the
values are theirs. A shape is that of an array, or a tuple itself.

An integer must be equal, a decimal is what the value is printed as at that precision, and a qualifier holds for the
values after it too. `about` allows one unit of the last digit: `about 0.8` is 0.7 to 0.9, `about 0.80` is 0.79 to 0.81.
What depends on how a processor rounds, such as the recall of a fitted coder, is `about` a number or `more than` it.

Every other comment states nothing. So that no value hides in words, those of a comment, a label or an explanation have
neither a shape nor a number with a qualifier, and their other numbers are literals of the page's code.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NUMBER = r"-?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
SHAPE = r"\(\d+,(?: \d+(?:, \d+)*)?\)"
VALUE = rf"(?:(about|more than|less than) )?({NUMBER}|{SHAPE}|'[^']*'|True|False)"
COMMENT = re.compile(rf"(?:(?P<label>.+): )?(?P<values>{VALUE}(?:, {VALUE})*)(?:[:;] (?P<explanation>.*))?")
NUMBER_IN_WORDS = re.compile(rf"(?<![\w@.,/-]){NUMBER}(?![\w%]|[.,]\d)")
STATED_IN_WORDS = re.compile(rf"(?:about|more than|less than) {NUMBER}|{SHAPE}")


@dataclass(frozen=True)
class Statement:
    """Values that the comment of a line states of `label`, or of the line itself."""

    line: int
    label: str
    values: tuple[tuple[str, str], ...]  # qualifier and literal of each
    explanation: str


def statement_of(comment: str, line: int) -> Statement | None:
    """Return what a comment states, None if it states no value."""
    found = COMMENT.fullmatch(comment)
    if not found:
        return None
    values, qualifier = [], ""
    for part in re.finditer(VALUE, found["values"]):
        qualifier = part[1] or qualifier
        values.append((qualifier, part[2]))
    return Statement(line, found["label"] or "", tuple(values), found["explanation"] or "")


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def numbers_of(source: str) -> set[float]:
    """Return the numbers that are literals of a source, in strings too, where they are words."""
    numbers: set[float] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            numbers.add(float(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            numbers |= {as_number(word) for word in NUMBER_IN_WORDS.findall(node.value)}
    return numbers


def as_number(literal: str) -> float:
    return float(literal.replace(",", ""))


def hidden_values(source: str, known: set[float]) -> list[str]:
    """Return the comments whose words have a shape, a number with a qualifier or one that is not known."""
    hidden = []
    for line, comment in comments_of(source):
        statement = statement_of(comment, line)
        words = f"{statement.label} {statement.explanation}" if statement else comment
        numbers = {as_number(word) for word in NUMBER_IN_WORDS.findall(words)}
        if STATED_IN_WORDS.search(words) or numbers - known:
            hidden.append(comment)
    return hidden


class Watch(ast.NodeTransformer):
    """Pass the values that statements are about through `_record(line, value)`, which returns them."""

    def __init__(self, statements: list[Statement], names: set[str]) -> None:
        self.pending = {statement.line: statement for statement in statements}
        self.names = names

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return self.watched(node, node)

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print":
            last = ast.Expr(call.args[-1])
            watched = self.watched(node, last)
            call.args[-1] = last.value
            return watched
        return self.watched(node, node)

    def watched(self, node: ast.Assign | ast.Expr, holder: ast.Assign | ast.Expr) -> list[ast.stmt]:
        """Return the statements in place of a node whose line a comment may be about; `holder` has the value."""
        statement = self.pending.pop(node.end_lineno or 0, None)
        if statement is None:
            return [node]
        parts = label_expressions(statement.label, self.names)
        if not parts:
            holder.value = self.record(statement, holder.value)
        after = [ast.Expr(self.record(statement, part)) for part in parts]
        return [ast.copy_location(line, node) for line in (node, *after)]

    def record(self, statement: Statement, value: ast.expr) -> ast.expr:
        return ast.Call(ast.Name("_record", ast.Load()), [ast.Constant(statement.line), value], [])


def label_expressions(label: str, names: set[str]) -> list[ast.expr]:
    """Return the expressions that a label lists, none where it is words."""
    try:
        tree = ast.parse(label, mode="eval").body
    except SyntaxError:
        return []
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    roots = [next((node.id for node in ast.walk(part) if isinstance(node, ast.Name)), None) for part in parts]
    return parts if all(root in names for root in roots) else []


def run(source: str, namespace: dict[str, Any], name: str = "<snippet>", first_line: int = 1) -> list[str]:
    """Run a snippet in a namespace and return what its comments state falsely, one message each."""
    source = "\n" * (first_line - 1) + source
    statements = [found for line, text in comments_of(source) if (found := statement_of(text, line))]
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(namespace)
    recorded: dict[int, list[Any]] = {}

    def record(line: int, value: Any) -> Any:
        recorded.setdefault(line, []).append(value)
        return value

    namespace["_record"] = record
    watched = ast.fix_missing_locations(Watch(statements, names).visit(tree))
    exec(compile(watched, name, "exec"), namespace)
    return [
        f"{name}:{statement.line}: {problem}"
        for statement in statements
        if (problem := problem_of(statement, recorded.get(statement.line, [])))
    ]


def problem_of(statement: Statement, runs: list[Any]) -> str:
    """Return how the values of a line, of each time that it ran, differ from what is stated; empty if they do not."""
    stated = ", ".join(f"{qualifier} {literal}".strip() for qualifier, literal in statement.values)
    if not runs:
        return f"{stated} is stated of a line that computes nothing: begin the comment with other words"
    values = runs if len(runs) > 1 or len(statement.values) == 1 else list(runs[0])
    pairs = statement.values * (len(values) if len(statement.values) == 1 else 1)
    if len(pairs) == len(values) and all(agrees(value, *pair) for value, pair in zip(values, pairs, strict=True)):
        return ""
    return f"{stated} is stated, the value is {', '.join(map(brief, values))}"


def brief(value: Any) -> str:
    shape = getattr(value, "shape", ())
    return f"an array of shape {tuple(shape)}" if shape else str(value)


def agrees(value: Any, qualifier: str, literal: str) -> bool:
    """Return whether a value is the stated one."""
    if literal.startswith("("):
        return bool(tuple(getattr(value, "shape", value)) == ast.literal_eval(literal))
    if literal.startswith("'") or literal in ("True", "False"):
        return str(value) == literal.strip("'")
    digits = len(literal.partition(".")[2])
    number, stated = float(value), as_number(literal)
    if qualifier == "about":
        return abs(number - stated) <= 10.0**-digits * (1 + 1e-9)
    if qualifier:
        return number > stated if qualifier == "more than" else number < stated
    return round(number, digits) == stated if digits else number == stated
