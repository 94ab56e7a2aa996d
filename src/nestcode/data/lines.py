"""Text files with one line per item."""

from pathlib import Path

from nestcode.errors import InvalidInput


def read_lines(path: Path) -> list[str]:
    r"""Return the lines of a UTF-8 text file, which "\n" or "\r\n" end.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "names.txt"
    ...     size = path.write_bytes(b"form\x0cfeed\r\nlast")
    ...     read_lines(path)
    ['form\x0cfeed', 'last']
    """
    try:
        # Not `splitlines`: it also splits at form feeds and U+2028, which texts contain, and later items would shift.
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            return [line.removesuffix("\n").removesuffix("\r") for line in file]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} must be UTF-8 text with one line per item, got other bytes: convert it") from error
