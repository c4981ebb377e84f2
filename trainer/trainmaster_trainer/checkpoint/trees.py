"""Turn a state_dict into named tensors and JSON, and back, without pickle.

Plain values stay as they are; what JSON does not have is an object with one member that says what it is:

    {"tensor": NAME}                                  a tensor of the state; "sharded": it was a DTensor
    {"bytes": NAME, "dtype": ..., "shape": ..., "is": "tensor" | "array" | "number"}     kept as bytes
    {"dict": [[key, value], ...]}   {"tuple": [...]}   {"set": [...]}   {"float": "nan"}   {"int": "..."}   ...

Only these come back: nothing that a file names is imported or called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

from trainmaster_trainer.checkpoint.state import dtype_name
from trainmaster_trainer.errors import ConfigurationError, with_article

Path = tuple[Any, ...]
Place = Callable[[Tensor, Path, bool], Tensor]  # a saved tensor, where it stands, whether it was a DTensor
_PLAIN_TENSORS = (Tensor, nn.Parameter)
_PLAIN = (type(None), bool, str)  # types of values that are in a tree as they are
_DEEPEST = 60
_LONGEST_NAME = 700
_LARGEST_INT = 1 << 62
_NUMBERS = "biufc"  # kinds of NumPy's dtypes
_DTYPES = {dtype_name(one): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
_CURE = "Let its state_dict() give numbers, texts, lists, dicts, tensors and arrays of numbers only"


class Writer:
    """Writer collects the tensors of one object's state_dict under names that begin with `prefix`.

    `as_bytes`: tensors are kept as bytes, whatever their dtype, as their numbers are nobody's business.
    """

    def __init__(self, what: str, prefix: str, *, as_bytes: bool) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._what = what
        self._prefix = prefix
        self._as_bytes = as_bytes

    def tree(self, value: Any, path: Path = ()) -> Any:
        """Return the JSON of a value.

        Raises:
            ConfigurationError: a checkpoint cannot hold it.
        """
        kind = type(value)
        if kind in _PLAIN or (kind is float and math.isfinite(value)):  # most are, beside tensors
            return value
        if len(path) > _DEEPEST:
            raise self._refused(path, "is nested too deep, or holds itself")
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, (int, float, str)):
            return _scalar(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value, path)
        return self._container(value, path)

    def _container(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict | Mapping):
            return {"dict": [[self._key(key, path), self.tree(item, (*path, key))] for key, item in value.items()]}
        if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
            # The state of Python's generator has 625 whole numbers, and may be asked for after each step.
            is_plain = {*map(type, value)} == {int} and -_LARGEST_INT < min(value) <= max(value) < _LARGEST_INT
            items = [*value] if is_plain else [self.tree(item, (*path, index)) for index, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, (set, frozenset)):
            return {"set": [self._key(item, path) for item in sorted(value, key=repr)]}
        if isinstance(value, (bytes, bytearray)):
            return {"hex": value.hex()}
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if isinstance(value, torch.device):
            return {"device": value.type}
        raise self._refused(
            path, f"is {with_article(type(value).__name__)}, which a checkpoint cannot hold without pickle"
        )

    def _key(self, key: Any, path: Path) -> Any:
        if type(key) is str:
            return key
        if isinstance(key, tuple) and all(isinstance(one, (str, int)) for one in key):
            return {"tuple": list(key)}
        if key is None or isinstance(key, (bool, str)):
            return key
        if isinstance(key, int) and abs(key) < _LARGEST_INT:
            return int(key)
        raise self._refused(path, f"has the key {key!r:.60}, which is neither a text nor a whole number")

    def _tensor(self, value: Tensor, path: Path) -> Any:
        is_usual = type(value) in _PLAIN_TENSORS
        sharded = not is_usual and isinstance(value, DTensor)
        if not is_usual and is_lazy(value):
            raise self._refused(path, "has no shape before the first forward pass: run one before restore()")
        if not (is_usual or sharded or isinstance(value, nn.Parameter)):
            raise self._refused(
                path, f"is {with_article(type(value).__name__)}, a tensor of a kind that a checkpoint cannot hold"
            )
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise self._refused(path, "is a tensor that is sparse, quantized or without memory")
        if sharded and self._as_bytes:
            raise self._refused(path, "is a DTensor, which only a module or an optimizer may have")
        value = value.detach() if value.requires_grad else value
        if not self._as_bytes and not sharded and value.is_cpu:  # most are
            return {"tensor": self._put(path, value)}
        device = {} if value.is_cpu else {"on": value.device.type}
        if not self._as_bytes:
            return {"tensor": self._put(path, value), **({"sharded": True} if sharded else {}), **device}
        raw = value.cpu().contiguous().reshape(-1).view(torch.uint8)
        kind = {"dtype": dtype_name(value.dtype), "shape": list(value.shape), "is": "tensor"}
        return {"bytes": self._put(path, raw), **kind, **device}

    def _array(self, value: Any, path: Path) -> Any:
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in _NUMBERS:
            raise self._refused(path, f"is an array of {array.dtype}, which is no number")
        raw = torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8) if array.nbytes else torch.empty(0).byte()
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {"bytes": self._put(path, raw), "dtype": array.dtype.str, "shape": list(value.shape), "is": kind}

    def _put(self, path: Path, tensor: Tensor) -> str:
        name = _name(self._prefix, path)
        while name in self.tensors:
            name += "'"
        self.tensors[name] = tensor
        return name

    def _refused(self, path: Path, why: str) -> ConfigurationError:
        where = "".join(f"[{key!r:.60}]" for key in path)
        return ConfigurationError(f"session.state: {self._what}.state_dict(){where} {why}. {_CURE}, or leave it out.")


def _scalar(value: float | str) -> Any:
    """Return a number or a text as a tree, also one of a subclass."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _LARGEST_INT else {"int": str(int(value))}
    return float(value) if math.isfinite(value) else {"float": str(float(value))}


@lru_cache(1 << 17)  # a snapshot is taken after each step, and has the same names
def _name(prefix: str, path: Path) -> str:
    return "/".join([prefix, *map(str, path)])[:_LONGEST_NAME].encode("ascii", "replace").decode()


def read(tree: Any, tensors: Mapping[str, Tensor], place: Place, path: Path = ()) -> Any:
    """Return the value of a tree.

    Raises:
        ValueError, KeyError, TypeError: it is no tree, or a tensor is missing.
    """
    if len(path) > _DEEPEST:
        raise ValueError("it is nested too deep")
    if isinstance(tree, list):
        return [read(item, tensors, place, (*path, index)) for index, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    for kind in (tuple, set):
        if kind.__name__ in tree:
            return kind([read(item, tensors, place, (*path, index)) for index, item in enumerate(tree[kind.__name__])])
    if "dict" in tree:
        pairs = [(read(key, tensors, place, path), item) for key, item in tree["dict"]]
        return {key: read(item, tensors, place, (*path, key)) for key, item in pairs}
    if "tensor" in tree:
        value = place(tensors[tree["tensor"]], path, bool(tree.get("sharded")))
    elif "bytes" in tree:
        value = _from_bytes(tree, tensors[tree["bytes"]])
    else:
        return _word(tree)
    # It comes to the kind of device that it was on, if there is one here.
    on_gpu = tree.get("on") == "cuda" and torch.cuda.is_available()
    return value.to("cuda") if on_gpu and isinstance(value, Tensor) and not isinstance(value, DTensor) else value


def _word(tree: dict[str, Any]) -> Any:
    ((kind, text),) = tree.items()
    if kind == "int" and len(text) < _LONGEST_NAME:
        return int(text)
    if kind == "float" and text in ("nan", "inf", "-inf"):
        return float(text)
    if kind == "hex":
        return bytes.fromhex(text)
    if kind == "dtype":
        return _DTYPES[text]
    if kind == "device" and text.isalpha():
        return torch.device(text)
    raise ValueError(f"{tree!r:.80} is nothing that a state has")


def _from_bytes(tree: dict[str, Any], raw: Tensor) -> Any:
    shape = tuple(map(int, tree["shape"]))
    dtype = _DTYPES[tree["dtype"]] if tree["is"] == "tensor" else np.dtype(tree["dtype"])
    if math.prod(shape) * int(dtype.itemsize) != raw.numel():
        raise ValueError("its shape is not that of its bytes")
    if str(dtype) in ("torch.bool", "bool") and raw.numel() and raw.max() > 1:
        raise ValueError("it holds truth values that are neither")
    if isinstance(dtype, np.dtype):
        if dtype.kind not in _NUMBERS:
            raise ValueError(f"{tree['dtype']!r:.40} is no number")
        array = np.frombuffer(raw.numpy().tobytes(), dtype=dtype).reshape(shape)
        return array[()] if tree["is"] == "number" else array.copy()
    return raw.clone().view(dtype).reshape(shape) if raw.numel() else torch.empty(shape, dtype=dtype)
