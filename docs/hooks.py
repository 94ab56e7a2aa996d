"""Generate parts of the pages from the code: docstring examples, the help of every command, the experiments."""

import re
from pathlib import Path
from typing import Any

import griffe

COMMANDS, EXPERIMENTS = "<!-- the help of every command -->", "<!-- the experiments -->"
COSTS, PLANNER = "<!-- the costs of the planner -->", Path(__file__).parents[1] / "src/nestcode/search/planner.py"


class Examples(griffe.Extension):
    """Puts doctests into fenced blocks: Markdown would render `>>>` as nested quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of every docstring."""
        if obj.docstring:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    """Return a docstring with its examples in fenced blocks, without the directives of doctest.

    >>> print(fence("Adds." + chr(10) * 2 + ">>> 1 + 1  # doctest: +SKIP" + chr(10) + "2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = re.sub(r" *# doctest: [+\w, ]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"^>>> .*?(?=\n\s*\n|\Z)", r"```pycon\n\g<0>\n```", text, flags=re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholders of a page."""
    for placeholder, generate in ((COMMANDS, help_of_commands), (EXPERIMENTS, experiments), (COSTS, costs)):
        if placeholder in markdown:
            markdown = markdown.replace(placeholder, generate())
    return markdown


def experiments() -> str:
    """Return the experiments of `nestcode reproduce` as a table."""
    from nestcode.reproduce.runner import find_experiments

    rows = [f"| `{one.name}` | {one.title} | {one.where} |" for one in find_experiments([])]
    return "\n".join(["| experiment | | in the paper |", "|---|---|---|", *rows])


def costs() -> str:
    """Return the table of the planner's constants: their names, values and comments."""
    lines = re.findall(r"^([A-Z][A-Z_, ]+) = (.+?)  # (.+)$", PLANNER.read_text(), flags=re.MULTILINE)
    rows = [f"| `{names}` | `{values}` | {meaning} |" for names, values, meaning in lines]
    return "\n".join(["| constant | value | meaning |", "|---|---|---|", *rows])


def help_of_commands() -> str:
    """Return one section per command, as Markdown."""
    from typer.main import get_command

    from nestcode.cli.app import app

    return "\n\n".join(_sections(get_command(app), "nestcode"))


def _sections(command: Any, name: str) -> list[str]:
    commands = getattr(command, "commands", None)
    if commands is not None:
        inside = [section for key, value in commands.items() if not value.hidden
                  for section in _sections(value, f"{name} {key}")]  # fmt: skip
        return inside if name == "nestcode" else [f"## {name}\n\n{command.help or ''}", *inside]
    lines = [f"## {name}\n\n{_plain(command.help)}"]
    if command.epilog:
        lines.append(f"```console\n$ {_plain(command.epilog).removeprefix('Example: ')}\n```")
    rows = [row for row in map(_row, command.params) if row]
    if rows:
        lines.append("| argument, option | |\n|---|---|\n" + "\n".join(rows))
    return lines


def _row(parameter: Any) -> str:
    """Return the table row of an argument or option."""
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return ""
    if parameter.param_type_name == "argument":
        name = (parameter.metavar or parameter.name).upper()
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    known = isinstance(default, int | float | str | Path) and not isinstance(default, bool) and str(default)
    shown = f" Default: `{default}`." if known else ""
    description = _plain(getattr(parameter, "help", "") or "").replace("|", "\\|")
    return f"| `{name}` | {description}{shown} |"


def _plain(text: str | None) -> str:
    """Return help text without rich's markup and line breaks."""
    return " ".join(re.sub(r"\[/?[a-z ]*\]", "", text or "").split())
