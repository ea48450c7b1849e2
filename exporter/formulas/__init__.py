"""FLOP counts of operators: formulas, the zero-cost list, and what is in neither."""

from __future__ import annotations

from exporter.formulas import (  # noqa: F401  # importing registers their formulas
    attention,
    contraction,
    convolution,
    foreach,
    indexing,
    linalg,
    normalization,
    pointwise,
    pooling,
    recurrent,
    reduction,
    resampling,
)
from exporter.formulas.registry import cost, flops_status, register
from exporter.formulas.spec import Cost, TensorSpec

__all__ = ["Cost", "TensorSpec", "cost", "flops_status", "register"]
