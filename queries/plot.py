"""What figures for papers share; each question draws its own, with matplotlib."""

from __future__ import annotations

from typing import Any

from queries.errors import OutputError, QuestionError

# Okabe and Ito's palette: told apart by every kind of colour vision, and in print
COLORS = {
    "parameter": "#0072B2",
    "buffer": "#56B4E9",
    "input": "#999999",
    "activation": "#E69F00",
    "temporary": "#F0E442",
    "gradient": "#009E73",
    "optimizer": "#CC79A7",
}
PATH_COLORS = {True: "#D55E00", False: "#56B4E9"}  # on the critical path, and beside it


def figure_and_axes() -> tuple[Any, Any]:
    """Return an empty figure and its axes, sized for a column of a paper.

    Raises:
        QuestionError: if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to load
    except ModuleNotFoundError:
        raise QuestionError("plots need matplotlib: pip install 'export-profiles[plot]'") from None
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    return figure, figure.add_subplot()


def save(figure: Any, path: str) -> None:
    """Write a figure into a PNG, PDF or SVG file.

    Raises:
        QuestionError: if matplotlib does not know the format.
        OutputError: if the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=200)
    except ValueError as error:  # a format that it does not know
        raise QuestionError(f"cannot draw {path}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise OutputError(f"cannot draw {path}: {error.strerror}") from error
