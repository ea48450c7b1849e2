"""The options of a profile, each declared once: :class:`RunSettings` and what follows from it.

From a declaration follow the option of the command, the checks of ``exporter.settings.Settings``,
a keyword of ``profile_model``, the column of ``profiles``, what makes two profiles the same, and
how profiles are named and told apart. Standard library only.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict

from store.columns import OPTION, Option, names, option, record

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES = ("train", "eval")
TARGETS = ("cuda", "cpu", "meta")


@record(kw_only=True)
class RunSettings:
    """How a model is run, as it is stored with the profile.

    To add an option, declare it here and, if ``profile_model`` is to take it, in
    :class:`RunOptions`; write a revision that adds its column; use it; and regenerate.
    """

    batch_size: int = option(
        "samples in the input",
        default=4,
        least=1,
        is_wide=True,
        is_swept=True,
        named_as="b{}",
        help="Batch size; repeat it to profile each.",
    )
    dtype: str = option(
        "number format of parameters and inputs, such as float32",
        default="float32",
        choices=("float32", "bfloat16", "float16", "float64"),
        named_as="{}",
        help="Type of parameters and of floating inputs.",
    )
    mode: str = option(
        "train or eval",
        default="train",
        choices=MODES,
        is_checked=True,
        named_as="{}",
        flags="--train/--eval",
        help="Mode of the model.",
    )
    backward: bool = option(
        "1 if the backward pass was run",
        default=True,
        flags="--forward-only",
        help="Leave out the backward pass.",
    )
    input_grad: bool = option(
        "1 if gradients of the inputs were asked for",
        default=False,
        help="Compute gradients of the inputs, too.",
    )
    target: str = option(
        "device whose kernels the profile describes: cuda, cpu or meta",
        default="cuda",
        choices=TARGETS,
        is_checked=True,
        named_as="{}",
        help="Device that the profile is for; none is needed.",
    )
    attention: str = option(
        "attention kernel: auto, flash, efficient or math",
        default="auto",
        choices=("auto", "flash", "efficient", "math"),
        help="Kernel of scaled dot-product attention.",
    )
    autocast: str = option(
        "number format of autocast; '' without",
        default="",
        choices=("", "bfloat16", "float16"),
        help="Run under automatic mixed precision.",
    )
    optimizer: str = option(
        "optimizer whose step was run; '' without",
        default="",
        choices=("", "sgd", "momentum", "adam", "adamw"),
        none_as="none",
        help="Add its step after the backward pass.",
    )


class RunOptions(TypedDict, total=False):
    """The options that ``profile_model`` takes as they are; the model and its inputs say others."""

    target: str
    backward: bool
    input_grad: bool
    attention: str
    autocast: str


def run_values(settings: RunSettings) -> dict[str, Any]:
    """Return what the settings say of a run, by the names of :class:`RunSettings`."""
    return {name: getattr(settings, name) for name in names(RunSettings)}


def options(settings: type[RunSettings]) -> Mapping[str, Option]:
    """Return the options that a class of settings declares, by the names of its fields."""
    return {
        item.name: item.metadata[OPTION] for item in fields(settings) if OPTION in item.metadata
    }


def check_options(settings: RunSettings) -> None:
    """Check the value of every option.

    Raises:
        ValueError: if one is none of its choices, or too small.
    """
    for name, declared in options(type(settings)).items():
        value = getattr(settings, name)
        if declared.least is not None and value < declared.least and value != declared.default:
            raise ValueError(f"{name.replace('_', ' ')} {value} is below {declared.least}")
        if declared.choices and value not in declared.choices:
            known = ", ".join(map(repr, declared.choices))
            raise ValueError(f"{name} {value!r} is none of {known}")
