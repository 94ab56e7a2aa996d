"""Coders on the Hugging Face Hub: `save`, `push` and `load`.

A coder's repository, or the local folder that mirrors it, holds two files: `model.safetensors`, which `Coder.save`
wrote, and `README.md`, a model card generated from the coder. Folders need no extra; repositories need
`pip install 'nestcode[hub]'`.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from nestcode import coders
from nestcode.coders import Coder, load_coder
from nestcode.errors import InvalidInput, import_extra
from nestcode.storage import FloatType, read_record, write_atomic

__all__ = ["load", "push", "save"]

WEIGHTS, CARD = "model.safetensors", "README.md"
MARK = "library_name: nestcode"  # every model card we write contains this line


def save(
    coder: Coder, folder: str | os.PathLike[str], *, name: str | None = None, dtype: FloatType = "float32"
) -> None:
    """Write a fitted coder and its model card to a folder.

    >>> import tempfile
    >>> import numpy as np
    >>> from nestcode import LinearCoder
    >>> from nestcode.integrations import hub
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> coder = LinearCoder(width=16).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hub.save(coder, folder)
    ...     hub.load(folder).encode(X) == coder.encode(X)
    True

    Args:
        coder: a fitted coder.
        folder: the destination; created if missing.
        name: the name in the card, the folder's by default.
        dtype: "float16" stores float32 arrays as float16 (see `Coder.save`).

    """
    folder = Path(folder)
    existing = folder / CARD
    if existing.exists() and MARK not in existing.read_text(errors="replace"):
        raise InvalidInput(
            f"save overwrites only model cards of Nestcode, and {existing} is not one: choose another folder"
        )
    coder.save(folder / WEIGHTS, dtype=dtype)
    fingerprint = read_record(folder / WEIGHTS).fingerprint  # of what was written: float16 changes it
    write_atomic(existing, _card(coder, name or folder.resolve().name, fingerprint).encode())


def push(
    coder: Coder,
    repo_id: str,
    *,
    private: bool | None = None,
    commit_message: str = "Upload a coder with Nestcode",
    token: str | None = None,
    dtype: FloatType = "float32",
) -> str:
    """Upload a fitted coder and its model card, and return the URL of the commit.

    >>> hub.push(coder, "user/faces")  # doctest: +SKIP
    'https://huggingface.co/user/faces/commit/…'

    Args:
        coder: a fitted coder.
        repo_id: the repository, such as "user/name"; created if missing.
        private: whether a new repository is private; by default your organization's setting.
        commit_message: the message of the commit.
        token: an access token; by default the token of `hf auth login`.
        dtype: "float16" stores float32 arrays as float16 (see `Coder.save`).

    """
    api = import_extra("huggingface_hub", extra="hub", purpose="hub.push").HfApi(token=token, library_name="nestcode")
    _ = coder.n_features_in_  # raises NotFitted before a repository is created
    name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id  # with the user's name in front
    with tempfile.TemporaryDirectory() as folder:
        save(coder, folder, name=name, dtype=dtype)
        commit = api.upload_folder(repo_id=name, folder_path=folder, commit_message=commit_message)
    return str(commit)


def load(
    source: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None, **modules: Any
) -> Coder:
    """Load the coder of any kind in a folder, a file or a repository.

    >>> hub.load("user/faces", revision="v2")  # doctest: +SKIP

    Args:
        source: an existing path, otherwise a repository such as "user/name".
        revision: a branch, tag or commit of the repository.
        token: an access token; by default the token of `hf auth login`.
        modules: the PyTorch modules of a coder that was built from your own (see `load_coder`).

    """
    if Path(source).exists():
        return load_coder(Path(source) / WEIGHTS if Path(source).is_dir() else source, **modules)
    if "/" not in os.fspath(source):
        raise InvalidInput(
            f"source must be a folder or a repository such as 'user/name', got {os.fspath(source)!r}, "
            "which is neither: check the path"
        )
    hub = import_extra("huggingface_hub", extra="hub", purpose="hub.load of a repository")
    try:
        path = hub.hf_hub_download(os.fspath(source), WEIGHTS, revision=revision, token=token, library_name="nestcode")
    except hub.errors.HFValidationError as error:
        raise InvalidInput(
            f"source must be a folder or a repository such as 'user/name', got {os.fspath(source)!r}, "
            "which is neither: check the path"
        ) from error
    except hub.errors.LocalEntryNotFoundError:
        raise  # without a network; a subclass of the next error, and its own message is better
    except hub.errors.EntryNotFoundError as error:
        raise InvalidInput(f"{source} holds no {WEIGHTS}: give a repository that hub.push wrote") from error
    return load_coder(path, **modules)


def _card(coder: Coder, name: str, fingerprint: str) -> str:
    """Return the model card: the coder's kind and size, its error by prefix length, and how to use it."""
    kind, features, width = type(coder).__name__, coder.n_features_in_, coder.width_
    return f"""---
{MARK}
pipeline_tag: feature-extraction
tags:
- nestcode
- nested-codes
- compression
---

# {name.rpartition("/")[2]}

A `{kind}` of Nestcode. It encodes vectors of {features:,} features as nested codes of {width:,} bits: \
{-(-width // 8):,} bytes instead of {4 * features:,} as float32. Every prefix of a code is a code too, and decodes.

## Error by prefix length

Mean squared error per feature as measured in fitting, and its ratio to the error at length 0, where every code \
decodes to the mean.

| bits | bytes | MSE | ratio |
|---:|---:|---:|---:|
{_error_table(coder, width)}

## Use it

```bash
pip install '.[hub{"" if kind in coders.__all__ else ",torch"}]'  # in a clone of Nestcode
```

```python
from nestcode import Index
from nestcode.integrations import hub

coder = hub.load("{name}")
codes = coder.encode(X)                     # X has {features} columns
X_hat = coder.decode(codes.prefix({width // 2}))    # any length from 0 to {width}

index = Index(coder)
index.add(X)
hits = index.search(X[:5], k=10)            # hits.ids, hits.distances
```

Its fingerprint is `{fingerprint}`.
"""


def _error_table(coder: Coder, width: int) -> str:
    """Return a row for length 0, the powers of two from 8 on, and the width."""
    at_zero, rows = coder.expected_error(0), []
    for length in (0, *(1 << power for power in range(3, (width - 1).bit_length())), width):
        error = coder.expected_error(length)
        ratio = f"{error / at_zero:.2%}" if at_zero else "–"
        rows.append(f"| {length:,} | {-(-length // 8):,} | {error:.4g} | {ratio} |")
    return "\n".join(rows)
