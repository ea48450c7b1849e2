"""Whether a step fits into a device's memory, what fills it, and how it grows with the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from queries.cli_options import format_option, opened, the_profile
from queries.devices import device_named, list_devices
from queries.errors import QuestionError
from queries.fetch import profile_exists, rows_of, values_of
from queries.tables import field_names, table_of, write_table
from store.columns import names
from store.command import database_option
from store.settings import RunSettings

if TYPE_CHECKING:
    from store import Store

__all__ = ["Fit", "fits"]

# parameter-sized state per optimizer: Adam keeps two moments, momentum one (torch.optim)
OPTIMIZER_STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """The memory of one stored profile of the model, at its batch size."""

    profile_id: int
    batch_size: int
    kept_bytes: int
    peak_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What a step needs against what a device has, in bytes."""

    device: str
    param_bytes: int
    buffer_bytes: int
    input_bytes: int
    gradient_bytes: int  # of parameters
    optimizer_bytes: int
    kept_bytes: int  # activations alive when forward ends
    peak_bytes: int  # requested bytes at the highest point of the step
    overhead_bytes: int  # what the allocator reserves beyond that: rounding, fragments
    workspace_bytes: int  # of the matrix library
    added_bytes: int  # state of an optimizer that was asked for and is not in the profile
    needed_bytes: int  # peak + overhead + workspace + added
    memory_bytes: int  # of the device
    free_bytes: int  # memory - needed; negative if it does not fit
    batches: tuple[BatchPoint, ...]  # the same configuration at every stored batch size
    bytes_per_sample: int  # growth of needed_bytes between the two largest; -1: only one stored
    largest_batch_size: int  # that should still fit by that growth; -1 if unknown

    @property
    def is_fitting(self) -> bool:
        """Whether the step fits."""
        return self.free_bytes >= 0


_TOTALS = """
SELECT param_bytes, buffer_bytes, input_bytes, kept_bytes, peak_bytes, peak_reserved_bytes,
       workspace_bytes
FROM profile_totals
"""
# of one model under the same settings, whatever their batch size
_SAME = " AND ".join(f"q.{name} = p.{name}" for name in names(RunSettings) if name != "batch_size")
_SIBLINGS = f"""
SELECT q.profile_id, q.batch_size, q.kept_bytes, q.peak_bytes,
       q.peak_reserved_bytes, q.workspace_bytes
FROM profiles p
JOIN models m ON m.model_id = p.model_id
JOIN models n ON n.zoo = m.zoo AND n.name = m.name AND n.config = m.config
JOIN profiles q ON q.model_id = n.model_id AND {_SAME}
WHERE p.profile_id = :profile_id ORDER BY q.batch_size, q.profile_id
"""  # noqa: S608 - our own columns
_STATE = """
SELECT size_bytes FROM storages
WHERE profile_id = :profile_id AND storage_class = 'optimizer' AND is_host = 0
"""


def fits(store: Store, profile_id: int, device: str, *, optimizer: str = "") -> Fit:
    """Return what a step of a stored profile needs against a device's memory.

    Args:
        store: an open store.
        profile_id: a stored profile.
        device: the name of a row of ``devices``.
        optimizer: of OPTIMIZER_STATES: adds its state if the profile was recorded without one;
            it lives as long as the parameters, so it adds to the peak in full.

    Raises:
        ProfileMissing: if there is no such profile.
        QuestionError: if the device or the optimizer does not exist.
    """
    profile_exists(store, profile_id)
    if optimizer and optimizer not in OPTIMIZER_STATES:
        known = ", ".join(OPTIMIZER_STATES)
        raise QuestionError(f"no optimizer {optimizer!r}; optimizers: {known}")
    chosen = device_named(store, device)
    ((param, buffer, inputs, kept, peak, reserved, workspace),) = rows_of(
        store, _TOTALS, profile_id
    )
    (recorded,) = values_of(store, "SELECT optimizer FROM profiles", profile_id)
    # added up here: sums past 2^63-1 are errors in SQL
    gradient = sum(values_of(store, "SELECT grad_bytes FROM mem_stats", profile_id))
    state = sum(values_of(store, _STATE, profile_id))
    added = 0
    if optimizer and not recorded:
        # without a backward pass there are no gradients to read the trained parameters from
        added = OPTIMIZER_STATES[optimizer] * gradient
    needed = reserved + workspace + added
    newest = {  # by batch size: of several profiles the last one stored
        batch_size: BatchPoint(sibling, batch_size, its_kept, its_peak, its_reserved + its + added)
        for sibling, batch_size, its_kept, its_peak, its_reserved, its in rows_of(
            store, _SIBLINGS, profile_id
        )
    }
    batches = tuple(newest.values())
    slope, largest = _growth(batches, chosen.memory_bytes)
    return Fit(
        device=chosen.name,
        param_bytes=param,
        buffer_bytes=buffer,
        input_bytes=inputs,
        gradient_bytes=gradient,
        optimizer_bytes=state,
        kept_bytes=kept,
        peak_bytes=peak,
        overhead_bytes=reserved - peak,
        workspace_bytes=workspace,
        added_bytes=added,
        needed_bytes=needed,
        memory_bytes=chosen.memory_bytes,
        free_bytes=chosen.memory_bytes - needed,
        batches=batches,
        bytes_per_sample=slope,
        largest_batch_size=largest,
    )


def _growth(batches: tuple[BatchPoint, ...], memory_bytes: int) -> tuple[int, int]:
    """Return bytes per sample (rounded up), and the largest batch that should fit."""
    if len(batches) < 2:
        return -1, -1
    low, high = batches[-2:]
    slope = -(-(high.needed_bytes - low.needed_bytes) // (high.batch_size - low.batch_size))
    if slope <= 0:
        return slope, -1
    room = memory_bytes - high.needed_bytes
    return slope, max(high.batch_size + room // slope, 0)


@click.command("fits", short_help="Show whether a step fits into devices.")
@click.argument("profile")
@click.option(
    "--device", "devices", metavar="NAME", multiple=True, help="Repeatable.  [default: all]"
)
@click.option(
    "--optimizer",
    metavar="NAME",
    default="",
    help="Add the state of sgd, momentum, adam or adamw to a profile without optimizer.",
)
@click.option("--batches", is_flag=True, help="List the model's stored batch sizes instead.")
@database_option
@format_option
def command(
    profile: str,
    devices: tuple[str, ...],
    optimizer: str,
    batches: bool,
    url: str,
    output_format: str,
) -> None:
    """Show whether a step fits into the memory of devices, and what fills it.

    \b
    Example:
      query-profiles fits resnet50 --device T4 --optimizer adam
    """
    with opened(url) as store:
        profile_id = the_profile(store, profile)
        chosen = devices or tuple(device.name for device in list_devices(store))
        results = [fits(store, profile_id, name, optimizer=optimizer) for name in chosen]
    if batches:
        points = results[0].batches if results else ()
        write_table(table_of(points, field_names(BatchPoint)), output_format)
        return
    columns = [name for name in field_names(Fit) if name != "batches"]
    write_table(table_of(results, ["device", "is_fitting", *columns[1:]]), output_format)
