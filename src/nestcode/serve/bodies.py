"""Bodies of requests and answers: JSON, or rows of float32 and packed codes."""

import asyncio
import binascii
import contextlib
import re
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from nestcode.arrays import Floats, Ids, shown
from nestcode.codes import Codes
from nestcode.errors import InvalidInput
from nestcode.serve.limits import Limits
from nestcode.serve.schemas import Body

JSON = "application/json"
PIECE = 1 << 14  # bytes of ids that are read at once: other threads run in between
SHOWN = 1 << 16  # bytes of a body that is read again to show a wrong value
RULE = 100  # characters of a rule, which may repeat a value
PLACE = re.compile(r"\.(\w+)|\[(\d+)\]")  # of a value, as msgspec names it: $.vectors[0][1]
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises
LONE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])")  # a surrogate without its other half
Model = TypeVar("Model", bound=Body)
_as_rows = msgspec.json.Decoder(list[msgspec.Raw])
_as_floats = msgspec.json.Decoder(list[float])
_as_text = msgspec.json.Decoder(str)
_as_ids = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]])


async def read_body(request: Request, limits: Limits, most: int) -> bytes:
    """Return the body of a request, unless it has more than `most` bytes or is too slow."""
    if int(request.headers.get("content-length", 0)) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError:
        message = f"a body must arrive within {limits.seconds:g} s: send fewer rows at a time"
        raise HTTPException(408, message, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the body was complete") from None
    return b"".join(parts)


def _too_large(most: int) -> HTTPException:
    message = f"such a body must have at most {most:,} bytes: send fewer rows at a time, or in bytes instead of JSON"
    return HTTPException(413, message, {"Connection": "close"})


def media_type(request: Request, *accepted: str) -> str:
    """Return the media type of a body, which must be one of these.

    Browsers send forms and plain text to other sites unasked, but none of these types, so pages of other sites cannot
    write.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise HTTPException(415, f"bodies must not be compressed, got Content-Encoding {encoding}: send plain bytes")
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in accepted:
        raise HTTPException(415, f"Content-Type must be {' or '.join(accepted)}, got {given or 'none'}")
    return given


@cache
def _decoder(model: type[Model]) -> msgspec.json.Decoder[Model]:
    return msgspec.json.Decoder(model)


def parse(model: type[Model], body: bytes) -> Model:
    """Return a JSON body as its model, or raise an error that names the first thing wrong."""
    found: Model = _decoded(_decoder(model), body, "")
    return found


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw, where: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise InvalidInput(_what_is_wrong(error, text, where)) from None
    except UNREADABLE as error:
        raise InvalidInput(_why_unreadable(error, bytes(text))) from None


def _why_unreadable(error: Exception, text: bytes) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the body must be UTF-8, got the byte 0x{error.object[error.start]:02x} in a text: encode it as UTF-8"
    if "truncated" in str(error) and LONE.search(text):  # as msgspec calls it
        return "texts must be Unicode, got a lone surrogate in the body: decode the text again"
    return f"the body must be JSON, got {error}: write it with a library"


def parse_query(model: type[Model], request: Request) -> Model:
    """Return the parameters of a URL as their model; each may be given once."""
    given = request.query_params
    twice = next((name for name in given if len(given.getlist(name)) > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"{twice} must be given once, got {', '.join(given.getlist(twice))[:40]}: leave out the others"
        )
    try:
        return msgspec.convert(dict(given), model, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(_what_is_wrong(error, msgspec.json.encode(dict(given)), "", "the URL")) from None


def only_in_body(request: Request) -> None:
    """Raise if a URL has parameters: the options of a JSON body are its keys."""
    if request.query_params:
        raise InvalidInput(f"options of a JSON body are its keys, got ?{str(request.query_params)[:40]}: move them")


def _what_is_wrong(error: Exception, text: bytes | msgspec.Raw, where: str, whole: str = "the body") -> str:
    """Return the message of an error of msgspec: where it is, the rule and the value."""
    rule, _, place = str(error).partition(" - at `$")
    place, got = place.rstrip("`"), ""
    if place and len(text) <= SHOWN:
        with contextlib.suppress(*UNREADABLE):  # such as an integer that is too large for any type
            value = msgspec.json.decode(text)
            for key, number in PLACE.findall(place):
                value = value[key] if key else value[int(number)]
            got = f", got {shown(value)}"
    return f"{(where + place).lstrip('.') or whole}: {rule.replace('`', '')[:RULE]}{got}"


def is_given(value: object) -> bool:
    """Return whether a key of a body has a value; text that is read later may be null."""
    if isinstance(value, msgspec.Raw):
        return bytes(value) != b"null"
    return value is not None and value is not msgspec.UNSET


def only_one(body: Body, *names: str) -> str:
    """Return which of these keys a body has, which must be exactly one."""
    given = [name for name in names if is_given(getattr(body, name))]
    if len(given) != 1:
        raise InvalidInput(f"a body must have exactly one of {', '.join(names)}, got {', '.join(given) or 'none'}")
    return given[0]


def check_count(count: int, most: int, what: str) -> None:
    """Raise unless a request has between one row and the limit."""
    if not 1 <= count <= most:
        remedy = "send several requests" if count else "send at least one"
        raise InvalidInput(f"a request must have 1 to {most:,} {what}, got {count:,}: {remedy}")


def rows_of(text: msgspec.Raw, features: int, most: int, where: str = "vectors") -> Floats:
    """Return rows of JSON as float32: commas and brackets are counted before memory is taken."""
    if bytes(text).startswith(b"["):
        check_count(bytes(text).count(b"[") - 1, most, where)
    given = _decoded(_as_rows, text, where)
    rows = np.empty((len(given), features), np.float64)
    for number, row in enumerate(given):
        count = bytes(row).count(b",") + (len(row) > 2)
        if count == features:
            row = _decoded(_as_floats, row, f"{where}[{number}]")
            count = len(row)
        if count != features:
            raise InvalidInput(f"vectors must have {features} features each, got one of {count}")
        rows[number] = row
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
        small = rows.astype(np.float32)
    large = np.isinf(small)  # JSON has neither NaN nor inf
    if large.any():
        number = int(np.argmax(large.any(axis=1)))
        raise InvalidInput(
            f"vectors must be within float32, got {rows[large][0]:g} in row {number}: scale or drop that row"
        )
    return small


def ids_of(text: msgspec.Raw, where: str, most: int | None = None) -> Ids:
    """Return the ids in a JSON body, up to the limit, read piece by piece."""
    given, parts, start = bytes(text), [], 1
    if not given.startswith(b"["):
        _decoded(_as_ids, given, where)
    if most is not None:
        check_count(given.count(b",") + bool(given[1:-1].strip()), most, where)
    while start < len(given):
        end = given.find(b",", start + PIECE)
        end = len(given) - 1 if end < 0 else end
        parts.append(np.array(_decoded(_as_ids, b"[%b]" % given[start:end], where), np.int64))
        start = end + 1
    return np.concatenate(parts)


def condition_of(text: msgspec.Raw, parameters: list[Any] | None, most: int) -> tuple[str, bytes]:
    """Return a condition, whose length is limited, and its parameters as JSON."""
    condition = _decoded(_as_text, text, "filter")
    if len(condition) > most:
        raise InvalidInput(
            f"a condition must have at most {most:,} characters here, got {len(condition):,}: give long lists as "
            "parameters, as in lang IN ?"
        )
    return condition, msgspec.json.encode(parameters or [])


def rows_in(body: bytes, features: int) -> Floats:
    """Return rows of a binary body."""
    if len(body) % (4 * features):
        raise InvalidInput(f"rows of {features} float32 must have {4 * features} bytes each, got {len(body)} in all")
    rows = np.frombuffer(body, "<f4").reshape(-1, features).astype(np.float32, copy=False)
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
    try:
        packed = binascii.unhexlify("".join(given))
    except ValueError as error:
        raise InvalidInput(f"codes must be hexadecimal ({error}): send two digits for each byte") from None
    return Codes(np.frombuffer(packed, np.uint8).reshape(-1, size), width)


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
    return Response(msgspec.json.encode(content), media_type=JSON, headers=headers)
