"""Which kinds of capture a model is tried with, and what a real run on the CPU may cost.

A size that depends on a value nobody knows is never made up silently:

- where the caller gave real weights and inputs, the model is run for real on the CPU;
- where the zoo says that a model's sizes depend on values (detectors), the values that matter are
  drawn, seeded, and the profile says so;
- where the user asked for ``capture="real"``, missing values are drawn for a run on the CPU; for
  ``capture="drawn"`` they are drawn on the meta device, as for such zoos; where
  they asked for ``assume="keep-all"``, a predicate over unknown values keeps everything;
- otherwise the model fails, with the operator and the module named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exporter.capture.arguments import tensors_in
from exporter.capture.drawn import DRAW, KEEP_ALL
from exporter.errors import TraceError

if TYPE_CHECKING:
    from torch import nn

    from exporter.settings import Settings

MOST_BYTES = 4 << 30  # of parameters, buffers and inputs of a model that is run for real

SEEDED = "seeded-values"
_NOTES = {
    "": "",
    KEEP_ALL: "a predicate over unknown values is true everywhere",
    DRAW: "weights, inputs and outputs of contractions and norms are seeded normal numbers of the "
    "size that the initialisation gives",
    SEEDED: "weights and inputs without values are seeded random numbers",
}


def capture_attempts(
    model: nn.Module, inputs: Any, settings: Settings, *, by_zoo: bool, draw: bool
) -> list[tuple[str, str]]:
    """Return the kinds of capture to try, in order, each with what it assumes of unknown values.

    Args:
        model: the model.
        inputs: its positional and named inputs.
        settings: what was asked for.
        by_zoo: whether a zoo has built the model, without values.
        draw: whether the zoo allows values to be drawn.
    """
    if settings.capture in {"meta", "real"}:
        return [(settings.capture, "")]
    if settings.assume:
        return [("drawn", settings.assume)]
    if draw or settings.capture == "drawn":
        return [("drawn", DRAW)]
    if by_zoo or has_meta_tensors(model, inputs):
        return [("meta", "")]
    return [("meta", ""), ("real", "")]


def has_meta_tensors(model: nn.Module, inputs: Any) -> bool:
    """Return whether a weight or an input has no values."""
    return any(
        tensor.is_meta for tensor in (*model.parameters(), *model.buffers(), *tensors_in(inputs))
    )


def assumption_of(model: nn.Module, inputs: Any, capture: str, assumed: str) -> tuple[str, str]:
    """Return what a profile says about the values that it rests on, and the same in words.

    Both are "" if the values are the caller's.
    """
    kind = SEEDED if capture == "real" and has_meta_tensors(model, inputs) else assumed
    return kind, _NOTES[kind]


def refuse_too_large(model: nn.Module, inputs: Any) -> None:
    """Check that a model may be run for real.

    Raises:
        TraceError: if its parameters, buffers and inputs are more than ``MOST_BYTES``.
    """
    storages = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
        for tensor in (*model.parameters(), *model.buffers(), *tensors_in(inputs))
    }
    total = sum(storages.values())
    if total > MOST_BYTES:
        raise TraceError(
            f"a real run on the CPU needs {total / 2**30:.1f} GiB of parameters and inputs, more "
            f"than the {MOST_BYTES >> 30} GiB allowed; use a smaller model or batch"
        )


def way_out(settings: Settings) -> str:
    """Return what a user can do about unknown values."""
    if settings.capture == "auto" and not settings.assume:
        return (
            "; give real weights and inputs, or choose capture 'real' (seeded values) "
            "or the assumption 'keep-all'"
        )
    return ""
