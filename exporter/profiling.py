"""Profiling one model: the public entry points."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import torch
from torch import nn

from exporter.autograd_state import clean_autograd_state, surrounding_autocast
from exporter.capture.arguments import tensors_in
from exporter.capture.run import OptimizerFactory, Run, record_run
from exporter.capture_policy import (
    assumption_of,
    capture_attempts,
    refuse_too_large,
    way_out,
)
from exporter.errors import TraceError, UnknownValueError
from exporter.failures import explained, misses_value
from exporter.model_copy import TensorCopier, copy_inputs, copy_model
from exporter.records.profile import build_profile, structural_hash
from exporter.settings import Settings
from exporter.targets.rules import device_rules
from store.collector import gc_paused
from store.records import Profile, ProfileInfo
from store.settings import RunOptions, options, run_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.zoo.base import ZooModel
    from store.columns import Option

Entry = TypeVar("Entry", bound=Callable[..., Profile])
META = torch.device("meta")
CPU = torch.device("cpu")


def _lists_options(function: Entry) -> Entry:
    """Have a function's signature and help list the options that it takes as ``RunOptions``."""
    declared = options(Settings)
    named = [name for name in declared if name in RunOptions.__annotations__]
    kinds = {item.name: item.type for item in fields(Settings)}
    signature = inspect.signature(function)
    own = list(signature.parameters.values())[:-1]
    listed = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=declared[name].default,
            annotation=kinds[name],
        )
        for name in named
    ]  # fmt: skip
    function.__signature__ = signature.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
    lines = "".join(f"\n            {name}: {_said(declared[name])}" for name in named)
    above, end, below = (function.__doc__ or "").partition("\n\n    Raises:")
    function.__doc__ = above + lines + end + below
    return function


def _said(option: Option) -> str:
    """Return what an option means, for a help."""
    known = ", ".join(map(repr, option.choices)) or "True, False"
    return f"{known}. {option.help}" if not option.flags else f"False: {option.help}"


@_lists_options
def profile_model(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    name: str = "model",
    optimizer: str | OptimizerFactory | None = None,
    capture: str = "auto",
    assume: str = "",
    **options: Unpack[RunOptions],
) -> Profile:
    """Return the profile of one run of a model; the model is left exactly as it was.

    Under ``torch.no_grad`` or ``torch.inference_mode`` it is a profile of inference: nothing is
    kept for backward, and there is none.

    Args:
        model: any module, on any device, in the mode (train or eval) to be profiled.
        args: positional inputs. Tensors may be on meta; integer tensors with values keep them.
            The batch size is the length of a list that comes first, or the first dimension of the
            first tensor.
        kwargs: named inputs.
        name: under which the profile is stored.
        optimizer: None, "sgd", "momentum", "adam", "adamw", or a function that makes a
            ``torch.optim.Optimizer`` from parameters; one step of it is recorded.
        capture: "meta", "drawn" (on meta, with the values that sizes depend on drawn or assumed),
            "real" (run on the CPU; weights and inputs on meta get seeded values), or "auto": real
            only where the model asks for values that the meta device does not have, and only if
            its weights and inputs have values.
        assume: "", or "keep-all": a predicate over values that nobody knows is true everywhere, so
            that sizes are upper bounds; stored with the profile and each operator that used it.
        **options: how the model is run, ``autocast=""`` in the ``torch.autocast`` region of the
            target's device that the caller is in, if any:

    Raises:
        TraceError: if the model fails, or its sizes depend on values that nobody knows; the text
            names operator and module.
        TypeError: if the model is no module, ``args`` a tensor, or an option none of these.
        ValueError: if an option has none of its values.
    """
    for option in options:
        if option not in RunOptions.__annotations__:
            raise TypeError(f"profile_model() got an unexpected keyword argument {option!r}")
    asked = Settings(
        optimizer=optimizer if isinstance(optimizer, str) else "",
        capture=capture,
        assume=assume,
        **options,
    )
    if not isinstance(model, nn.Module):
        raise TypeError(f"{model!r} is no torch.nn.Module; wrap a function in one")
    if isinstance(args, torch.Tensor):  # type: ignore[unreachable]
        raise TypeError("args is one tensor; pass the positional inputs as a tuple: (x,)")
    kwargs = dict(kwargs or {})
    args = tuple(args)
    tensors = tensors_in((args, kwargs))
    settings = replace(
        asked,
        batch_size=_batch_size(args, tensors),
        mode="train" if model.training else "eval",
        backward=asked.backward and torch.is_grad_enabled(),
        autocast=asked.autocast or surrounding_autocast(asked.target),
    )
    info = _info(
        settings,
        zoo="user",
        name=name,
        package="",
        package_version="",
        config="{}",
        input_spec=tuple(_spec_text(t) for t in tensors),
        built_on=_device_of(model),
        dtype=_dtype_of(model),
    )
    factory = optimizer if callable(optimizer) else None
    with clean_autograd_state():
        return _profile(model, args, kwargs, settings, info, by_zoo=False, factory=factory)


def profile_built(built: ZooModel, settings: Settings) -> Profile:
    """Return the profile of a zoo's model, which is used up.

    Raises:
        TraceError: if the model fails; the text names model, operator and module.
    """
    settings = replace(settings, batch_size=built.batch_size or settings.batch_size)
    info = _info(
        settings,
        zoo=built.zoo,
        name=built.name,
        package=built.package,
        package_version=built.package_version,
        config=built.config,
        input_spec=built.input_spec,
        built_on=built.built_on,
        dtype=built.dtype or settings.dtype,
    )
    return _profile(
        built.model,
        built.args,
        built.kwargs,
        settings,
        info,
        by_zoo=True,
        draw=built.draws_values,
        factory=None,
    )


@gc_paused()
def _profile(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    info: ProfileInfo,
    *,
    by_zoo: bool,
    factory: OptimizerFactory | None,
    draw: bool = False,
) -> Profile:
    """Return the profile of the first kind of capture that the model allows."""
    began = time.perf_counter()
    attempts = capture_attempts(model, (args, kwargs), settings, by_zoo=by_zoo, draw=draw)
    for capture, assume in attempts:
        device = CPU if capture == "real" else META
        copier = TensorCopier(device)
        try:
            if device is CPU:
                refuse_too_large(model, (args, kwargs))
            subject = model if by_zoo and device is META else copy_model(model, copier)
            given, named = copy_inputs((args, kwargs), copier)
            run = _run(subject, given, named, settings, device, assume, factory)
        except UnknownValueError as error:
            if (capture, assume) == attempts[-1]:
                raise TraceError(f"{info.model}: {error}{way_out(settings)}") from error
            continue
        except TraceError as error:
            raise TraceError(f"{info.model}: {error}") from error
        needless = bool(assume) and not run.assumed
        kind, note = assumption_of(model, (args, kwargs), capture, assume if run.assumed else "")
        info = replace(
            info,
            capture="meta" if needless else capture,
            assumption=kind,
            assumption_note=note,
            structural_hash=structural_hash(run),
        )
        profile = build_profile(run, info, seconds=time.perf_counter() - began)
        run.recording.release()
        return profile
    raise AssertionError("an attempt returns or raises")


def _run(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: Settings,
    device: torch.device,
    assume: str,
    factory: OptimizerFactory | None,
) -> Run:
    """Record one run on the device, with the target's rules in force."""
    inputs = tensors_in((args, kwargs))
    if settings.input_grad:
        for tensor in inputs:
            if tensor.is_floating_point():
                tensor.requires_grad_()
    if factory is None and settings.optimizer:
        factory = _optimizer(settings.optimizer, settings.target)
    try:
        with device_rules(settings):
            return record_run(
                model,
                args,
                kwargs,
                settings,
                input_names=_input_names(model, args, kwargs),
                optimizer=factory,
                device=device,
                assume=assume,
            )
    except Exception as error:
        kind = UnknownValueError if misses_value(error) else TraceError
        raise kind(explained(error, model)) from error


def _optimizer(name: str, target: str) -> OptimizerFactory:
    """Return what makes the named optimizer as torch would by default on the target."""
    foreach = target == "cuda"  # torch's default for tensors on CUDA

    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        members = list(parameters)
        if name == "adam":
            return torch.optim.Adam(members, foreach=foreach)
        if name == "adamw":
            return torch.optim.AdamW(members, foreach=foreach)
        momentum = 0.9 if name == "momentum" else 0.0
        return torch.optim.SGD(members, lr=1e-3, momentum=momentum, foreach=foreach)

    return make


def _input_names(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return a name for every input tensor: its parameter of ``forward``, numbered if several."""
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        pairs: Iterable[tuple[str, Any]] = list(bound.items())
    except (TypeError, ValueError):
        pairs = [*((f"input_{i}", value) for i, value in enumerate(args)), *kwargs.items()]
    found: dict[int, list[str]] = {}
    for name, value in pairs:
        tensors = tensors_in(value)
        for i, tensor in enumerate(tensors):
            found.setdefault(id(tensor), []).append(name if len(tensors) == 1 else f"{name}_{i}")
    return [
        found[id(tensor)].pop(0) if found.get(id(tensor)) else f"input_{i}"
        for i, tensor in enumerate(tensors_in((args, kwargs)))
    ]


def _info(
    settings: Settings,
    *,
    zoo: str,
    name: str,
    package: str,
    package_version: str,
    config: str,
    input_spec: tuple[str, ...],
    built_on: str,
    dtype: str,
) -> ProfileInfo:
    return ProfileInfo(
        **(run_values(settings) | {"dtype": dtype}),
        zoo=zoo,
        model=name,
        package=package,
        package_version=package_version,
        config=config,
        input_spec="[" + ", ".join(f'"{text}"' for text in input_spec) + "]",
        capture="meta",
        built_on=built_on,
        assumption="",
        assumption_note="",
        torch_version=torch.__version__,
        exporter_version=_exporter_version(),
        structural_hash="",
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@functools.cache
def _exporter_version() -> str:
    try:
        return version("export-profiles")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"


def _batch_size(args: tuple[Any, ...], tensors: list[torch.Tensor]) -> int:
    """Return how many samples the inputs hold: in a list of images, or in the first dimension."""
    if args and isinstance(args[0], list) and args[0]:
        return len(args[0])
    return max(1, tensors[0].shape[0] if tensors and tensors[0].dim() else 1)


def _spec_text(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _device_of(model: nn.Module) -> str:
    first = next(model.parameters(), None)
    return "meta" if first is not None and first.device.type == "meta" else "cpu"


def _dtype_of(model: nn.Module) -> str:
    first = next((p for p in model.parameters() if p.is_floating_point()), None)
    return str(first.dtype if first is not None else torch.float32).removeprefix("torch.")
