"""A `NestedIndex` as a record of a file."""

from typing import TYPE_CHECKING, Any

from nestcode.arrays import check_int
from nestcode.coders import coder_from_record
from nestcode.codes import Codes
from nestcode.errors import DamagedFile
from nestcode.integrations._exact import ExactRows
from nestcode.storage import Arrays, Record

if TYPE_CHECKING:
    from nestcode.integrations.faiss import NestedIndex

KIND, VERSION = "NestedIndex", 1


def to_record(index: "NestedIndex") -> Record:
    """All of it."""
    settings: dict[str, Any] = {
        "d": index.d,
        "width": index.width,
        "metric": index.metric,
        "rows_to_fit": index.rows_to_fit,
        "next": index.next_id,
    }
    items = index._items
    if isinstance(items, ExactRows):
        return Record(KIND, VERSION, settings, {"ids": items.ids, "rows": items.rows})
    assert items.coder is not None
    coder, ids = items.coder.to_record(), items.ids
    settings["coder"] = {"kind": coder.kind, "version": coder.version, "settings": coder.settings}
    arrays = {f"coder.{name}": array for name, array in coder.arrays.items()}
    return Record(KIND, VERSION, settings, {"ids": ids, "codes": items.codes(ids).packed, **arrays})


def from_record(cls: type["NestedIndex"], record: Record, path: str) -> "NestedIndex":
    """What `to_record` gave."""
    if record.kind != KIND or record.version > VERSION:
        raise DamagedFile(
            f"{path} holds a {record.kind} of version {record.version}, not a {KIND} of version {VERSION}: "
            "give a file that write_index wrote, or upgrade nestcode"
        )
    try:
        return _read(cls, dict(record.settings), record.arrays, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path} is not a {KIND} as it should be: {error}") from error


def _read(cls: type["NestedIndex"], settings: dict[str, Any], arrays: Arrays, path: str) -> "NestedIndex":
    following, stored = check_int(settings.pop("next"), "next", least=0), settings.pop("coder", None)
    if stored is None:
        index = cls(**settings)
        index._items.add(arrays["rows"], ids=arrays["ids"])
    else:
        own = {name.removeprefix("coder."): array for name, array in arrays.items() if name.startswith("coder.")}
        coder = coder_from_record(Record(**stored, arrays=own), path)
        index = cls(**settings, coder=coder)
        index._items.add(Codes(arrays["codes"], index.width), ids=arrays["ids"])
    index.next_id = following
    return index
