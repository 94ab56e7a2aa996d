"""The JSON bodies of requests and answers."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Hex = Annotated[str, Field(pattern=r"^([0-9a-fA-F]{2})+$")]
VECTORS: Any = [[0.1, -0.2, 0.3]]


class Body(BaseModel):
    """A body without other keys; numbers are numbers, not strings."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Queries(Body):
    """Queries: exactly one of vectors, codes, texts and ids."""

    vectors: list[list[float]] | None = Field(None, description="Rows of features.", examples=[VECTORS])
    codes: list[Hex] | None = Field(None, description="Packed codes, in hexadecimal.")
    texts: list[str] | None = Field(None, description="Texts, where the server has a model of text.")
    ids: list[Id] | None = Field(None, description="Items of the index.")


class SearchOptions(Body):
    """The arguments of `Index.search` besides queries: keys of JSON, or parameters of the URL of a binary body."""

    k: Count = 10
    candidates: Count | None = None
    rerank: Count | None = None
    rank: Literal["asymmetric", "hamming", "exact"] | None = None
    metric: Literal["l2", "cosine", "inner"] | None = None


class SearchRequest(SearchOptions, Queries):
    """The arguments of `Index.search`."""

    filter: list[Id] | None = Field(None, description="Only these items are found.")

    model_config = ConfigDict(json_schema_extra={"examples": [{"vectors": VECTORS, "k": 10}]})


class SearchAnswer(Body):
    """The nearest items of each query, nearest first; lists are shorter than k where there are fewer items."""

    ids: list[list[int]]
    distances: list[list[float]]
    compared: list[int] = Field(description="How many items each query was compared with.")


class NeighborhoodRequest(Queries):
    """The arguments of `Index.neighborhood`."""

    size: Count | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    limit: Annotated[int, Field(ge=0)] | None = Field(None, description="How many ids are sent at most.")

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [0], "size": 32}]})


class NeighborhoodAnswer(Body):
    """Of each query the smallest neighborhood with enough members."""

    length: list[int]
    count: list[int]
    ids: list[list[int]]


class NestedRequest(Queries):
    """One query, and the length of which to list members."""

    length: Annotated[int, Field(ge=0)] | None = Field(None, description="By default the longest that is shared.")
    limit: Annotated[int, Field(ge=0)] | None = Field(None, description="How many ids are sent at most.")

    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [0], "length": 8}]})


class NestedAnswer(Body):
    """Every neighborhood of one query: its size by length, from 0, and the members at one length."""

    code: str = Field(description="The query's code, in hexadecimal.")
    count: list[int]
    length: int
    ids: list[int]


class EncodeRequest(Body):
    """Rows to encode."""

    vectors: list[list[float]] | None = Field(None, examples=[VECTORS])
    texts: list[str] | None = None


class EncodeOptions(Body):
    """How many bits of codes are sent."""

    length: Annotated[int, Field(ge=1)] | None = None


class DecodeOptions(Body):
    """How many bits of codes are decoded."""

    length: Annotated[int, Field(ge=0)] | None = None


class AddOptions(Body):
    """What happens where an id is in use."""

    on_duplicate: Literal["error", "replace"] = "error"


class Codes(Body):
    """Packed codes, in hexadecimal."""

    codes: list[Hex]

    model_config = ConfigDict(json_schema_extra={"examples": [{"codes": ["a03f"]}]})


class Vectors(Body):
    """Rows of features."""

    vectors: list[list[float]]


class AddRequest(AddOptions):
    """Items to add, under ids that the client chooses, so that an add may be repeated."""

    vectors: list[list[float]] | None = Field(None, examples=[VECTORS])
    codes: list[Hex] | None = None
    ids: list[Id] = Field(examples=[[7]])


class RemoveRequest(Body):
    """Items to remove."""

    ids: list[Id] = Field(examples=[[7]])


class Written(Body):
    """How many items the index has, now that the write is durable."""

    count: int


class Error(Body):
    """What is wrong, and what to do about it."""

    error: str
