"""The base of progressive decoders: first the header arrives, then blocks, in chunks of any size."""

from abc import ABC, abstractmethod
from typing import Generic, TypeAlias, TypeVar

from nestcode.container.blocks import ArrivingBlocks
from nestcode.container.layout import IMAGES_MAGIC, ITEMS_MAGIC, TruncatedHeader
from nestcode.errors import DamagedFile, InvalidInput

Buffer: TypeAlias = bytes | bytearray | memoryview
Arrival = TypeVar("Arrival", bound=ArrivingBlocks)


class ProgressiveDecoder(ABC, Generic[Arrival]):
    """Collects the header, then passes on the payload; a refused stream stays refused."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start = bytearray()  # until the header is complete
        self._needed = self._fed = 0  # bytes that the header has at least, and bytes that arrived
        self._refused: DamagedFile | InvalidInput | None = None
        self._arrival: Arrival | None = None

    @abstractmethod
    def _begin(self, view: memoryview) -> Arrival:
        """Parse the header; raise `TruncatedHeader` if it is not complete."""

    def feed(self, chunk: Buffer) -> None:
        """Take the next bytes. A damaged block raises; the bytes before it stay decoded."""
        if self._refused is not None:
            raise self._refused
        view = as_view(chunk)
        if self._fed and bytes(view[: len(ITEMS_MAGIC)]) in (ITEMS_MAGIC, IMAGES_MAGIC):
            raise InvalidInput(
                f"these bytes begin a stream, but {self._fed} bytes of one have arrived already: a server that ignores "
                f"the header Range sends the whole file (status 200, not 206), so feed what follows byte {self._fed}, "
                "or decode another stream with another decoder"
            )
        self._fed += len(view)
        try:
            if self._arrival is None:
                self._start += view
                if len(self._start) < self._needed:
                    return
                whole = memoryview(bytes(self._start))
                self._arrival = self._begin(whole)
                self._start.clear()
                view = whole[self._arrival.header.size :]
            self._arrival.feed(view)
        except TruncatedHeader as cut:
            self._needed = cut.needed
            if cut.needed > self._limit:
                self._refused = InvalidInput(
                    f"the header takes {cut.needed} bytes, more than the limit of {self._limit}: give a larger limit"
                )
                raise self._refused from None
        except (DamagedFile, InvalidInput) as error:
            self._refused = error
            raise

    def _payload(self) -> Arrival:
        """Return the payload, or raise while the header is not complete."""
        if self._arrival is not None:
            return self._arrival
        if self._refused is not None:
            raise self._refused
        raise InvalidInput(f"the stream's header is not complete after {self._fed} bytes: feed more of it first")


def as_view(data: Buffer) -> memoryview:
    """Return the bytes of a buffer without copying them."""
    try:
        return memoryview(data).cast("B")
    except (TypeError, ValueError):  # it has no buffer, or not one of plain values
        raise InvalidInput(
            f"a stream must come as bytes, got {type(data).__name__}: open files with StreamReader or ImageStreamReader"
        ) from None
