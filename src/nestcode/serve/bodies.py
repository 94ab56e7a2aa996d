"""Bodies of requests and answers: JSON, or rows of float32 and packed codes."""

import asyncio
import json
from typing import Any, TypeVar

import numpy as np
from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from nestcode.arrays import Floats
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.serve.limits import Limits

JSON = "application/json"
Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request, unless it is too large or too slow."""
    if int(request.headers.get("content-length", 0)) > limits.body:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise _too_large(limits)
                parts.append(part)
    except TimeoutError:
        message = f"a body must arrive within {limits.seconds:g} s: send fewer rows at a time"
        raise HTTPException(408, message, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the body was complete") from None
    return b"".join(parts)


def _too_large(limits: Limits) -> HTTPException:
    message = f"a body must have at most {limits.body:,} bytes: send fewer rows at a time"
    return HTTPException(413, message, {"Connection": "close"})


def media_type(request: Request, *accepted: str) -> str:
    """Return the media type of a body, which must be one of these.

    Browsers send forms and plain text to other sites unasked, but none of these types: a page elsewhere cannot write.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise HTTPException(415, f"bodies must not be compressed, got Content-Encoding {encoding}: send plain bytes")
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise HTTPException(415, f"Content-Type must be {' or '.join(accepted)}, got {given or 'none'}")
    return given


def parse(model: type[Model], body: bytes) -> Model:
    """Return a JSON body as its model, or raise an error that names the first thing wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidInput(what_is_wrong(error.errors(include_url=False)[0])) from None


def parse_query(model: type[Model], request: Request) -> Model:
    """Return the parameters of a URL as their model; each may be given once."""
    given = request.query_params
    twice = next((name for name in given if len(given.getlist(name)) > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"{twice} must be given once, got {', '.join(given.getlist(twice))[:40]}: leave out the others"
        )
    try:
        return model.model_validate_strings(dict(given), strict=False)
    except ValidationError as error:
        raise InvalidInput(what_is_wrong(error.errors(include_url=False)[0])) from None


def only_in_body(request: Request) -> None:
    """Raise if a URL has parameters: the options of a JSON body are its keys."""
    if request.query_params:
        raise InvalidInput(f"options of a JSON body are its keys, got ?{str(request.query_params)[:40]}: move them")


def what_is_wrong(error: Any) -> str:
    """Return the message of an error that pydantic found: where it is, the rule and the value."""
    if error["type"] == "json_invalid":
        lone = ": escape whole characters, not half of a surrogate pair" if "hex escape" in error["msg"] else ""
        return f"the body must be JSON, got {error['ctx']['error']}{lone}"
    given = repr(error["input"])
    shown = f", got {given[:40]}{'…' if len(given) > 40 else ''}" if error["loc"] else ""
    return f"{'.'.join(map(str, error['loc'])) or 'the body'}: {error['msg']}{shown}"


def only_one(body: BaseModel, *names: str) -> str:
    """Return which of these keys a body has, which must be exactly one."""
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        raise InvalidInput(f"a body must have exactly one of {', '.join(names)}, got {', '.join(given) or 'none'}")
    return given[0]


def check_count(count: int, most: int, what: str) -> None:
    """Raise unless a request has at least one row and at most so many."""
    if not 1 <= count <= most:
        remedy = "send several requests" if count else "send at least one"
        raise InvalidInput(f"a request must have 1 to {most:,} {what}, got {count:,}: {remedy}")


def rows_of(vectors: list[list[float]], features: int) -> Floats:
    """Return rows of JSON as float32."""
    wrong = next((len(row) for row in vectors if len(row) != features), None)
    if wrong is not None:
        raise InvalidInput(f"vectors must have {features} features each, got one of {wrong}")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
        return check_finite(np.array(vectors, dtype=np.float64).astype(np.float32))


def rows_in(body: bytes, features: int) -> Floats:
    """Return rows of a binary body."""
    if len(body) % (4 * features):
        raise InvalidInput(f"rows of {features} float32 must have {4 * features} bytes each, got {len(body)} in all")
    return check_finite(np.frombuffer(body, "<f4").reshape(-1, features).astype(np.float32, copy=False))


def check_finite(rows: Floats) -> Floats:
    """Return rows, or raise if one has NaN or infinite values."""
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise InvalidInput(f"vectors must be finite, got NaN or inf in row {int(np.argmin(finite))}: drop that row")
    return rows


def codes_of(given: list[str], width: int) -> Codes:
    """Return codes of JSON, whose last byte may have unused bits."""
    size = -(-width // 8)
    wrong = next((len(code) for code in given if len(code) != 2 * size), None)
    if wrong is not None:
        raise InvalidInput(f"codes of {width} bits must have {2 * size} hexadecimal digits each, got one of {wrong}")
    return Codes(np.frombuffer(bytes.fromhex("".join(given)), np.uint8).reshape(-1, size), width)


def codes_in(body: bytes, width: int) -> Codes:
    """Return codes of a binary body."""
    size = -(-width // 8)
    if len(body) % size:
        raise InvalidInput(f"codes of {width} bits must have {size} bytes each, got {len(body)} in all")
    return Codes(np.frombuffer(body, np.uint8).reshape(-1, size), width)


def as_hex(codes: Codes) -> list[str]:
    """Return codes in hexadecimal."""
    return [row.tobytes().hex() for row in codes.packed]


def answer(content: Any, headers: dict[str, str] | None = None) -> Response:
    """Return an answer in JSON."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(body, media_type=JSON, headers=headers)
