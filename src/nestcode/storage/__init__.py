"""Atomic, checksummed, versioned files.

`files.py` replaces a file whole or not at all. `records.py` keeps named arrays with their settings in one file: the
form of a fitted coder on disk. `mapped.py` maps large arrays, and checks them block by block as they are read.
`system.py` has the few calls that depend on the operating system.
"""

from nestcode.storage.files import (
    LONGEST,
    PIECE,
    check_path,
    make_folder,
    naming_file,
    open_file,
    sync_folder,
    writable,
    write_atomic,
    write_pieces,
)
from nestcode.storage.mapped import BLOCK, HEADER, PAGE, Mapped, MappedArrays, write_array, write_pages
from nestcode.storage.records import (
    Arrays,
    FloatType,
    Record,
    Storable,
    check_arrays,
    parse_json,
    parse_record,
    read_record,
    record_bytes,
    write_record,
)
from nestcode.storage.system import (
    allow_files,
    lock_file,
    page_faults,
    physical_memory,
    share_file,
    unlock_file,
)

__all__ = [
    "BLOCK",
    "HEADER",
    "LONGEST",
    "PAGE",
    "PIECE",
    "Arrays",
    "FloatType",
    "Mapped",
    "MappedArrays",
    "Record",
    "Storable",
    "allow_files",
    "check_arrays",
    "check_path",
    "lock_file",
    "make_folder",
    "naming_file",
    "open_file",
    "page_faults",
    "parse_json",
    "parse_record",
    "physical_memory",
    "read_record",
    "record_bytes",
    "share_file",
    "sync_folder",
    "unlock_file",
    "writable",
    "write_array",
    "write_atomic",
    "write_pages",
    "write_pieces",
    "write_record",
]
