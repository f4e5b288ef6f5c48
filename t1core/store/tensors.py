"""Arrays in one file, in the safetensors layout, written without a copy and read through a memory map.

Layout: 8 bytes little-endian header length, a JSON header, the arrays' bytes end to end. Any safetensors
reader opens it; we write it ourselves so that gigabytes of routes are never joined in memory and the size is
known first.
"""

import json
import mmap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from t1core.store.atomic import write_atomic
from t1core.store.schema import SCHEMA_VERSION, check_version

_DTYPES = {
    "BOOL": np.dtype(bool),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], *, metadata: Mapping[str, str]) -> None:
    """Write the arrays atomically. ValueError for a dtype that the layout lacks."""
    header: dict[str, object] = {"__metadata__": {"schema_version": str(SCHEMA_VERSION), **metadata}}
    pieces: list[memoryview] = []
    end = 0
    # Wide types first: with the header padded to 8 bytes, every array is then aligned in the memory map.
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
        if array.dtype not in _NAMES:
            raise ValueError(
                f"{path.name}: array {name!r} has dtype {array.dtype}, which safetensors cannot hold"
            )
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        if array.nbytes:
            pieces.append(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write_atomic(path, [len(text).to_bytes(8, "little"), text, *pieces])


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata). Arrays are read-only views of the mapped file: only what is touched is read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[8 + length :]
    metadata = header.pop("__metadata__", {})
    check_version(metadata.get("schema_version"), path=path)
    arrays = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[start:end], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata
