"""Questions to stored profiles: pure functions over a documented graph, and over tables."""

from __future__ import annotations

from queries.devices import Device, list_devices
from queries.errors import GraphError, ProfileNameError, QuestionError
from queries.load import load_graph
from queries.names import find_profile
from queries.questions.compare import ComparedCall, compare
from queries.questions.critical_path import CriticalPath, critical_path
from queries.questions.fits import Fit, fits
from queries.questions.liveness import Liveness, LiveStorage, liveness
from queries.questions.totals import (
    ModuleTotals,
    OperatorTotals,
    PhaseTotals,
    module_totals,
    operator_totals,
    phase_totals,
)

__all__ = [
    "ComparedCall",
    "CriticalPath",
    "Device",
    "Fit",
    "GraphError",
    "LiveStorage",
    "Liveness",
    "ModuleTotals",
    "OperatorTotals",
    "PhaseTotals",
    "ProfileNameError",
    "QuestionError",
    "compare",
    "critical_path",
    "find_profile",
    "fits",
    "list_devices",
    "liveness",
    "load_graph",
    "module_totals",
    "operator_totals",
    "phase_totals",
]
