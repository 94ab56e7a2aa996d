"""The description of any stream, whole or truncated."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StreamInfo:
    """The fields that both kinds of streams report."""

    header_bytes: int  # a stream cut after this many bytes or more can be decoded
    total_bytes: int  # of the whole stream
    count: int  # items or images
    expected_error: float  # mean squared error of a value, a pixel's in [0, 1], from what arrived
    coder: str  # fingerprint
    embedded: bool  # whether the stream contains its coder
    verified: int  # bytes of payload whose checksum matches
    unverified: int  # bytes of payload that arrived without their checksum
    damaged: int | None  # the first block that does not match its checksum
    trailing: int  # bytes after the end

    def to_json(self) -> str:
        """Return all fields as JSON."""
        return json.dumps(vars(self), indent=2)

    def payload_lines(self, kind: str, coding: str = "") -> list[str]:
        """Return lines about the coder and the payload."""
        lines = [
            f"coder {kind} {self.coder[:16]}{', embedded' if self.embedded else ''}",
            f"header {self.header_bytes:,} bytes; payload{coding}: {self.verified:,} bytes verified, "
            f"{self.unverified:,} unverified",
        ]
        if self.damaged is not None:
            lines.append(f"block {self.damaged:,} is damaged; the bytes before it are intact")
        if self.trailing:
            lines.append(f"{self.trailing:,} bytes follow the end")
        return lines
