"""The JSON bodies of requests and answers.

Rows and ids stay text here: their number is checked before any of them is read (`bodies.py`).
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Length = Annotated[int, Meta(ge=0, le=2**63 - 1)]
ID = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
Rows = Annotated[
    Raw,
    Meta(
        description="Rows of features.",
        examples=[[[0.1, -0.2, 0.3]]],
        extra_json_schema={"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    ),
]
Ids = Annotated[
    Raw, Meta(description="Items of the index.", examples=[[7]], extra_json_schema={"type": "array", "items": ID})
]
Hex = Annotated[list[str], Meta(description="Packed codes, in hexadecimal.", examples=[["a03f"]])]
Texts = Annotated[list[str], Meta(description="Texts, where the server has a model of text.")]


Wanted = Annotated[
    Raw,
    Meta(
        description="Items of the index, or a condition on their attributes.",
        examples=["lang = 'en' AND year > ?"],
        extra_json_schema={"oneOf": [{"type": "array", "items": ID}, {"type": "string"}]},
    ),
]
Value = str | int | float | bool | None
Parameter = Value | list[Value]


class Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """A body without other keys; numbers are numbers, not strings."""


class Queries(Body):
    """Queries: exactly one of vectors, codes, texts and ids."""

    vectors: Rows | UnsetType = UNSET
    codes: Hex | None = None
    texts: Texts | None = None
    ids: Ids | UnsetType = UNSET


class SearchOptions(Body):
    """The arguments of `Index.search` besides queries: keys of JSON, or parameters of the URL of a binary body."""

    k: Count = 10
    candidates: Count | None = None
    rerank: Count | None = None
    rank: Literal["asymmetric", "hamming", "exact"] | None = None
    metric: Literal["l2", "cosine", "inner"] | None = None
    allow_partial: bool = False


class SearchRequest(SearchOptions):  # and Queries: a Struct has one base
    """The arguments of `Index.search`; with `filter` only these items are found.

    A filter is ids, or a condition on attributes, whose `?` are `parameters`. With `text`, words for all queries or
    `{column: words}`, it is a hybrid search.
    `columns` are attributes to send with hits. With `allow_partial` a cluster answers without the parts that do not.
    """

    vectors: Rows | UnsetType = UNSET
    codes: Hex | None = None
    texts: Texts | None = None
    ids: Ids | UnsetType = UNSET
    filter: Wanted | UnsetType = UNSET
    parameters: list[Parameter] | None = None
    text: str | dict[str, str] | None = None
    columns: list[str] | None = None


class SearchAnswer(Body):
    """The nearest items of each query, nearest first; lists are shorter than k where there are fewer items.

    `compared` is how many items each query was compared with, `attributes` the columns that were asked for, `missing`
    the parts of a cluster that did not answer, where `allow_partial` was asked for.
    """

    ids: list[list[int]]
    distances: list[list[float]]
    compared: list[int]
    attributes: list[list[dict[str, Any]]] | UnsetType = UNSET
    missing: list[str] | UnsetType = UNSET


class AttributesRequest(Body):
    """Items, and the columns to send of each; all by default."""

    ids: Ids
    columns: list[str] | None = None


class AttributesAnswer(Body):
    """The attributes of the items that there are, with their ids."""

    ids: list[int]
    rows: list[dict[str, Any]]


class NeighborhoodRequest(Queries):
    """The arguments of `Index.neighborhood`; `limit` is how many ids are sent at most."""

    size: Count | None = None
    fraction: Annotated[float, Meta(gt=0, le=1)] | None = None
    limit: Length | None = None


class NeighborhoodAnswer(Body):
    """Of each query the smallest neighborhood with enough members."""

    length: list[int]
    count: list[int]
    ids: list[list[int]]


class NestedRequest(Queries):
    """One query, and the prefix length whose members to list: by default the longest shared prefix.

    `limit` is how many ids are sent at most.
    """

    length: Length | None = None
    limit: Length | None = None


class NestedAnswer(Body):
    """Every neighborhood of one query, whose code is in hexadecimal: its size by length, from 0, and some members."""

    code: str
    count: list[int]
    length: int
    ids: list[int]


class EncodeRequest(Body):
    """Rows to encode."""

    vectors: Rows | UnsetType = UNSET
    texts: Texts | None = None


class EncodeOptions(Body):
    """How many bits of codes are sent."""

    length: Count | None = None


class DecodeOptions(Body):
    """How many bits of codes are decoded."""

    length: Length | None = None


class AddOptions(Body):
    """What happens where an id is in use."""

    on_duplicate: Literal["error", "replace"] = "error"


class Codes(Body):
    """Packed codes."""

    codes: Hex


class Vectors(Body):
    """Rows of features."""

    vectors: list[list[float]]


class AddRequest(AddOptions, kw_only=True):
    """Items to add, under ids that the client chooses, so that an add may be repeated; of each its attributes."""

    vectors: Rows | UnsetType = UNSET
    codes: Hex | None = None
    ids: Ids
    attributes: list[dict[str, Any]] | None = None


class RemoveRequest(Body):
    """Items to remove."""

    ids: Ids


class Written(Body):
    """How many items the index has, now that the write is durable."""

    count: int


class Error(Body):
    """What is wrong, and what to do about it."""

    error: str


def schema_of(body: type[Body]) -> dict[str, Any]:
    """Return the JSON schema of a body.

    >>> schema_of(Written)["required"]
    ['count']
    """
    found: dict[str, Any] = msgspec.json.schema(body)["$defs"][body.__name__]
    return found
