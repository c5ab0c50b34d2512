"""A device for machines without one: tensors that say they lie on ``cuda:0``, and mix with those of the processor no more
than a GPU's do. They are computed on the processor, so that results are its own: what is tried is who lies where.

Whatever a build of torch without CUDA cannot ask of such a tensor in its own code is answered here.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

NAME = "cuda:0"
CPU = torch.device("cpu")
aten = torch.ops.aten
#: Operators that take an index on the processor beside a tensor elsewhere.
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
#: Operators that copy from one device to another.
COPIES = {aten.copy_.default, aten._to_copy.default}
DIRECT = {
    torch.nonzero: aten.nonzero.default,
    torch.Tensor.nonzero: aten.nonzero.default,
    torch.Tensor.__invert__: aten.bitwise_not.default,
}


class Elsewhere(torch.Tensor):
    """A tensor on the second device; `below` has its values."""

    below: torch.Tensor

    @staticmethod
    def __new__(cls, below: torch.Tensor) -> "Elsewhere":
        found: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            below.size(),
            strides=below.stride(),
            storage_offset=below.storage_offset(),
            dtype=below.dtype,
            device=torch.device(NAME),
        )
        found.below = below
        return found

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.below})"

    def detach(self) -> "Elsewhere":
        return self

    def item(self) -> Any:
        return self.below.item()

    def tolist(self) -> Any:
        return self.below.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("a tensor of the second device is no array; call cpu() first")
        return self.below.numpy()

    def __float__(self) -> float:
        return float(self.below)

    def __int__(self) -> int:
        return int(self.below)

    def __bool__(self) -> bool:
        return bool(self.below)

    def __getitem__(self, key: Any) -> Any:
        return Elsewhere(self.below[_plain(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, torch.Tensor) and not isinstance(value, Elsewhere) and value.dim():
            raise RuntimeError(f"a tensor of the processor, {tuple(value.shape)}, is put into one elsewhere")
        self.below[_plain(key)] = _plain(value)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return DIRECT.get(func, func)(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatched(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    """Tensors that are made on, or brought to, the second device are so."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if Elsewhere not in types and not kwargs.get("device") and func._schema.name != "aten::to":
            return func(*args, **kwargs)
        return _dispatched(func, args, kwargs)


def _plain(values: Any) -> Any:
    if isinstance(values, Elsewhere):
        return values.below
    return type(values)(map(_plain, values)) if isinstance(values, tuple | list) else values


def _dispatched(func: Any, args: Any, kwargs: Any) -> Any:
    if func._can_decompose():
        with _Mode():
            return func.decompose(*args, **kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    tensors: list[torch.Tensor] = []
    tree_map_only(torch.Tensor, tensors.append, (args, kwargs))
    there = [one for one in tensors if isinstance(one, Elsewhere)]
    if there and func not in COPIES:
        _refuse_strays(func, args, tensors)
    away = bool(there)
    if kwargs.get("device") is not None:
        away = torch.device(kwargs["device"]).type != "cpu"
        kwargs = {**kwargs, "device": CPU}
    plain_args, plain_kwargs = tree_map_only(Elsewhere, lambda one: one.below, (args, kwargs))
    found = func(*plain_args, **plain_kwargs)
    if func._schema.is_mutable and isinstance(found, torch.Tensor):
        return kwargs.get("out", args[0] if args else None)  # what was written to
    own = {id(one.below): one for one in there}

    def placed(one: torch.Tensor) -> torch.Tensor:
        return own[id(one)] if id(one) in own else Elsewhere(one) if away else one

    return found if func is aten._local_scalar_dense.default else tree_map_only(torch.Tensor, placed, found)


def _refuse_strays(func: Any, args: Any, tensors: list[torch.Tensor]) -> None:
    strays = [one for one in tensors if not isinstance(one, Elsewhere) and one.dim()]
    if func in INDEXED and isinstance(args[0], Elsewhere):
        given = {id(one) for one in args[1] if one is not None}
        strays = [one for one in strays if id(one) not in given]
    if strays:
        raise RuntimeError(f"{func} of two devices: one of the processor has shape {tuple(strays[0].shape)}")


@contextmanager
def second_device() -> Iterator[None]:
    """Inside it there is a device `NAME`, in every thread that begins there."""
    begin = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with _Mode():
            begin(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(threading.Thread, "run", run)
        with _Mode():
            yield
