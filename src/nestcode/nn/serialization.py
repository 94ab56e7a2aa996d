"""Length distributions and nestings as JSON values, for the files of coders."""

from dataclasses import fields
from typing import Any

from nestcode import lengths
from nestcode.nn import nesting


def lengths_to_json(given: object) -> dict[str, Any] | None:
    """Return a distribution of `nestcode.lengths` or a nesting of `nestcode.nn` as JSON; None for a user's own class.

    >>> lengths_to_json(lengths.Beyond(lengths.Geometric(0.5), 3))
    {'kind': 'Beyond', 'lengths': {'kind': 'Geometric', 'decay': 0.5}, 'first': 3}
    """
    if type(given) not in _kinds():
        return None
    values = {field.name: getattr(given, field.name) for field in fields(given) if field.init}  # type: ignore[arg-type]
    return {"kind": type(given).__name__, **{name: _plain(value) for name, value in values.items()}}


def lengths_from_json(values: Any) -> Any:
    """Return the distribution or nesting that `lengths_to_json` described."""
    if isinstance(values, list):
        return [lengths_from_json(value) for value in values]
    if not isinstance(values, dict):
        return values
    kinds: dict[str, Any] = {kind.__name__: kind for kind in _kinds()}
    return kinds[values["kind"]](**{name: lengths_from_json(part) for name, part in values.items() if name != "kind"})


def _kinds() -> list[type]:
    """Return the classes that Nestcode ships."""
    every = [*lengths.Lengths.__subclasses__(), *nesting.Nesting.__subclasses__()]
    return [kind for kind in every if kind.__module__ in (lengths.__name__, nesting.__name__)]


def _plain(value: Any) -> Any:
    if isinstance(value, lengths.Lengths):
        return lengths_to_json(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
