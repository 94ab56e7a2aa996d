"""Coders on the Hugging Face Hub, or in folders laid out as there: the coder's file and a card that describes it.

huggingface-hub's own mixin would have to be a base class, and be imported with the package: here it is imported when a
repository is asked for. Folders need nothing.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestcode.errors import InvalidInput, import_extra
from nestcode.storage import FloatType, read_record, write_atomic

if TYPE_CHECKING:
    from nestcode.coders.base import Coder

WEIGHTS, CARD = "model.safetensors", "README.md"
MARK = "library_name: nestcode"  # a line of every card


def save(
    coder: "Coder",
    folder: str | os.PathLike[str],
    name: str | None = None,
    *,
    dtype: FloatType = "float32",
) -> None:
    """Write a coder and its card to a folder; `name` is what the card calls it."""
    folder = Path(folder)
    there = folder / CARD
    if there.exists() and MARK not in there.read_text(errors="replace"):
        raise InvalidInput(f"{there} is not a coder's card, and would be replaced: give another folder")
    coder.save(folder / WEIGHTS, dtype=dtype)
    fingerprint = read_record(folder / WEIGHTS).fingerprint  # float16 gives another coder
    write_atomic(there, card(coder, name or folder.resolve().name, fingerprint).encode())


def push(
    coder: "Coder",
    repo_id: str,
    *,
    private: bool | None,
    message: str,
    token: str | None,
    dtype: FloatType,
) -> str:
    """Upload a coder and its card; the address of the commit."""
    hub = import_extra("huggingface_hub", extra="hub", purpose="push_to_hub")
    api = hub.HfApi(token=token, library_name="nestcode")
    _ = coder.n_features_in_  # says so if it is not fitted, before a repository is made
    name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id  # with the user, where none was given
    with tempfile.TemporaryDirectory() as folder:
        save(coder, folder, name, dtype=dtype)
        commit = api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    return str(commit)


def load(source: str | os.PathLike[str], *, revision: str | None, token: str | None, **modules: Any) -> "Coder":
    """The coder in a folder or a repository."""
    from nestcode.coders import load_coder

    if Path(source).exists():
        return load_coder(Path(source) / WEIGHTS if Path(source).is_dir() else source, **modules)
    if "/" not in os.fspath(source):
        raise InvalidInput(
            f"there is no folder {source}, and a repository is named as in 'user/name': give one of them"
        )
    hub = import_extra("huggingface_hub", extra="hub", purpose="from_pretrained with a repository")
    try:
        path = hub.hf_hub_download(os.fspath(source), WEIGHTS, revision=revision, token=token, library_name="nestcode")
    except hub.errors.HFValidationError as error:
        raise InvalidInput(
            f"expected a folder that save_pretrained wrote or a repository such as 'user/name', got {str(source)!r}"
        ) from error
    except hub.errors.LocalEntryNotFoundError:
        raise  # there is no network, and its error says so
    except hub.errors.EntryNotFoundError as error:
        raise InvalidInput(f"{source} holds no {WEIGHTS}: give a repository that push_to_hub wrote") from error
    return load_coder(path, **modules)


def card(coder: "Coder", name: str, fingerprint: str) -> str:
    """The model card: what the coder is, its error by length, and how to use it."""
    kind, features, width = type(coder).__name__, coder.n_features_in_, coder._count_out()
    return f"""---
{MARK}
pipeline_tag: feature-extraction
tags:
- nestcode
- nested-codes
- compression
---

# {name.rpartition("/")[2]}

A `{kind}` of Nestcode. It turns items of {features:,} numbers into codes of \
{width:,} bits: {-(-width // 8):,} bytes in place of {4 * features:,} as float32. Every prefix of a code is a code \
too, and decodes.

## Error by length

As measured when it was fitted: the mean squared error of a number, and which part that is of the error at length 0, \
where everything decodes to the mean.

| bits | bytes | mean squared error | part |
|---:|---:|---:|---:|
{_table(coder, width)}

## Use it

```bash
pip install 'nestcode[hub{",torch" if kind == "DeepCoder" else ""}]'
```

```python
from nestcode import Coder, Index

coder = Coder.from_pretrained("{name}")
codes = coder.encode(X)                     # X has {features} columns
X_hat = coder.decode(codes.prefix({width // 2}))    # any length from 0 to {width}

index = Index(coder)
index.add(X)
hits = index.search(X[:5], k=10)            # hits.ids, hits.distances
```

Its fingerprint is `{fingerprint}`.
"""


def _table(coder: "Coder", width: int) -> str:
    """A row for 0, the powers of two from 8 on, and the width."""
    whole, rows = coder.expected_error(0), []
    for length in (0, *(1 << power for power in range(3, (width - 1).bit_length())), width):
        error = coder.expected_error(length)
        part = f"{error / whole:.2%}" if whole else "–"
        rows.append(f"| {length:,} | {-(-length // 8):,} | {error:.4g} | {part} |")
    return "\n".join(rows)
