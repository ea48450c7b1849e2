"""Building models without their memory: on the meta device, with the values that constructors read.

Parameters go to the meta device. What a constructor may want to read (``torch.linspace`` for drop
rates, ``torch.tensor`` of sizes, position tables) is small and has determined values: it is made
for real, and goes to the meta device when the model stands. So most constructors that read values
work, and a model larger than any memory can still be built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import torch
from torch import nn
from torch.nn import init
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from exporter.capture.values.initial_values import remember_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporter.settings import Settings

Model = TypeVar("Model", bound=nn.Module)

# Factories whose result is determined by their arguments, hence worth having for real.
_DETERMINED = {
    torch.arange, torch.as_tensor, torch.asarray, torch.eye, torch.full, torch.linspace,
    torch.logspace, torch.ones, torch.tensor, torch.tril_indices, torch.triu_indices, torch.zeros,
}  # fmt: skip
# Factories whose values nobody may rely on: parameters are made of these.
_UNDETERMINED = {
    torch.empty, torch.empty_strided, torch.rand, torch.randint, torch.randn, torch.randperm,
    torch.normal,
}  # fmt: skip
# What fills a tensor with numbers: on meta nothing, but slowly, and once for every weight.
_FILLING = {torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.fill_, torch.Tensor.zero_}
_INITIALISING = {init.normal_, init.uniform_, init.constant_, init.kaiming_uniform_}
# Real up to here. Above, values are not read one by one; and a model of thousands of layers must
# not fill the memory. 2**16 elements hold every position table of windowed attention.
_MOST_REAL_ELEMENTS = 1 << 16
_BUILT_ON_CPU: WeakSet[nn.Module] = WeakSet()


class _Construction(TorchFunctionMode):
    """Puts what constructors create on the meta device, except small determined values."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _UNDETERMINED or func in _DETERMINED:
            if kwargs.get("device") is None and kwargs.get("out") is None:
                return _created(func, args, kwargs)
        elif func in _FILLING or func in _INITIALISING:
            filled = _filled(func, args, kwargs)
            if filled is not None:
                return filled
        if func is torch.Tensor.to and args[0].is_meta:
            args, kwargs = _without_device(args, kwargs)
        if func is not torch.Tensor.copy_:
            tensors = list(_tensors_among((*args, *kwargs.values())))
            # A real number may meet a meta tensor; a real table may not, and joins it there. It is
            # moved as the object it is, for it may be the one that is written to.
            if any(tensor.is_meta for tensor in tensors):
                move_to_meta(tensor for tensor in tensors if tensor.dim())
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.numel() > _MOST_REAL_ELEMENTS:
            move_to_meta([result])
        return result


def _created(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """Return what a factory makes: on meta, or for real where its values are determined."""
    if func in _UNDETERMINED:
        return func(*args, **kwargs | {"device": "meta"})  # type: ignore[no-any-return]
    if func not in (torch.tensor, torch.as_tensor, torch.asarray):
        # The size is known only when it is there; on meta that costs nothing.
        probe: torch.Tensor = func(*args, **kwargs | {"device": "meta"})
        if probe.numel() > _MOST_REAL_ELEMENTS:
            return probe
    return func(*args, **kwargs)  # type: ignore[no-any-return]


def _filled(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor | None:
    """Return the meta tensor that would be filled, None if that is to be run after all.

    It is where another mode wants to see it, and where torch would refuse it.
    """
    tensor = args[0] if args else kwargs.get("tensor")
    if (
        not isinstance(tensor, torch.Tensor)
        or not tensor.is_meta
        or not tensor.is_floating_point()
        or torch._C._len_torch_function_stack()
    ):
        return None
    if func is init.kaiming_uniform_:
        if len(args) > 1 or 0 in tensor.shape:
            return None
        init._calculate_correct_fan(tensor, kwargs["mode"])  # either may say what is wrong
        init.calculate_gain(kwargs["nonlinearity"], kwargs["a"])
    elif func in _FILLING:
        numbers = all(isinstance(value, (bool, int, float)) for value in args[1:])
        if not numbers or (tensor.requires_grad and torch.is_grad_enabled()):
            return None
    return tensor


def _without_device(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of ``Tensor.to`` for a meta tensor, which cannot leave its device."""
    kept = [arg.dtype if isinstance(arg, torch.Tensor) else arg for arg in args[1:]]
    kept = [arg for arg in kept if not isinstance(arg, (str, torch.device))]
    named = {key: value for key, value in kwargs.items() if key != "device"}
    if not kept and "dtype" not in named:
        kept = [args[0].dtype]
    return (args[0], *kept), named


def _tensors_among(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors of a torch function's arguments, which nest in lists and tuples only."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _tensors_among(argument)


def build_on_meta(factory: Callable[[], Model], *, fallback: bool = True) -> Model:
    """Return the model that the factory makes, on the meta device.

    If the constructor needs values that a meta tensor does not have, it runs on the CPU, and the
    finished model is moved; :func:`built_on` tells. ``fallback=False`` rules that out, for models
    that no memory holds. Random state is left as it was, and whatever the constructor draws is the
    same each time.

    Raises:
        Exception: what the factory raises when it runs on the CPU.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            with _Construction():
                model = factory()
        except (RuntimeError, NotImplementedError, ValueError, TypeError):
            # Any way of asking a meta tensor for its values ends in one of these. An argument
            # that is wrong in itself raises again below.
            if not fallback:
                raise
            torch.manual_seed(0)
            model = factory()
            _BUILT_ON_CPU.add(model)
    move_to_meta(_tensors_of(model))
    return model


def built_on(model: nn.Module) -> str:
    """Return the device that a model's constructor ran on: "meta" or "cpu"."""
    return "cpu" if model in _BUILT_ON_CPU else "meta"


def prepared(model: nn.Module, settings: Settings) -> nn.Module:
    """Return the model itself, with parameters of the type and in the mode that are asked for."""
    return model.to(getattr(torch, settings.dtype)).train(settings.mode == "train")


def move_to_meta(tensors: Iterable[torch.Tensor]) -> None:
    """Give each tensor's own object a meta tensor of the same geometry.

    The objects stay: tied parameters stay tied, and views of one storage still share one.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    real = {id(tensor): tensor for tensor in tensors if not tensor.is_meta}
    moved = []
    for tensor in real.values():  # all alive until the end, so that no handle is used twice
        if tensor.layout is not torch.strided:
            moved.append((tensor, tensor.detach().to("meta")))
            continue
        remember_value(tensor, tensor)
        source = tensor.untyped_storage()
        if source._cdata not in storages:
            storages[source._cdata] = torch.UntypedStorage(  # type: ignore[no-untyped-call]
                source.nbytes(), device="meta"
            )
        meta = torch.empty(0, dtype=tensor.dtype, device="meta").set_(
            storages[source._cdata], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        moved.append((tensor, meta))
    for tensor, meta in moved:
        if isinstance(tensor, nn.Parameter):
            replacement: torch.Tensor = nn.Parameter(meta, requires_grad=tensor.requires_grad)
        else:
            replacement = meta.requires_grad_(tensor.requires_grad and tensor.is_leaf)
        # torch.utils.swap_tensors refuses a tensor that another one is a view of; all views of
        # this storage are replaced as well.
        torch._C._swap_tensor_impl(tensor, replacement)


def _tensors_of(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield parameters, buffers, and tensors that modules hold in plain attributes."""
    seen: set[int] = set()

    def walk(value: Any) -> Iterator[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            yield value
            return
        if isinstance(value, nn.Module):
            value = vars(value)
        if isinstance(value, dict):
            children: Iterable[Any] = value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            children = value
        else:
            return
        if value and id(value) not in seen:
            seen.add(id(value))
            for child in list(children):
                yield from walk(child)

    yield from walk(model)


def input_spec(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> tuple[str, ...]:
    """Return dtype and shape of every input tensor, such as ``float32[4, 3, 224, 224]``."""
    return tuple(
        f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        for leaf in tree_leaves((args, kwargs or {}))
        if isinstance(leaf, torch.Tensor)
    )
