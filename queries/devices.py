"""Accelerators, and how long an operator takes on one at best.

The roofline estimate of an operator is the larger of ``FLOPs / peak`` and ``bytes / bandwidth``,
plus the overhead of a launch (Williams, Waterman, Patterson: "Roofline", CACM 52(4), 2009).
It is an estimate by published peaks, never a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from queries.errors import QuestionError
from queries.fetch import rows_of

if TYPE_CHECKING:
    from store import Store

__all__ = ["Device", "list_devices"]

# times are rounded to this part of a microsecond, so that sums of them are exact in any order
_GRID = 2**20


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, with the peak of every number format that it has a row for."""

    name: str
    memory_bytes: int
    bandwidth_bytes_per_second: int
    launch_overhead_us: int
    peak_flops_per_second: dict[str, int]  # dense, by number format as torch names it
    source: str  # where the figures come from

    def peak(self, dtype: str) -> int:
        """Return the peak in FLOP/s for a number format.

        Raises:
            QuestionError: if the device has no row for it.
        """
        if dtype not in self.peak_flops_per_second:
            known = ", ".join(self.peak_flops_per_second)
            raise QuestionError(
                f"{self.name} has no peak for {dtype!r}, only for {known}; "
                "add a row to the table devices"
            )
        return self.peak_flops_per_second[dtype]


_DEVICES = """
SELECT name, dtype, peak_flops_per_second, bandwidth_bytes_per_second, memory_bytes,
       launch_overhead_us, source
FROM devices ORDER BY name, device_id
"""


def list_devices(store: Store) -> list[Device]:
    """Return every device in ``devices``, by name; a device is its rows, one per number format."""
    devices: dict[str, Device] = {}
    for name, dtype, peak, bandwidth, memory, overhead, source in store.query(_DEVICES)[1]:
        if name not in devices:
            devices[name] = Device(name, memory, bandwidth, overhead, {}, source)
        devices[name].peak_flops_per_second[dtype] = peak
    return list(devices.values())


def device_named(store: Store, name: str) -> Device:
    """Return a device by name, whatever the case.

    Raises:
        QuestionError: if none has that name; the message lists those that there are.
    """
    devices = list_devices(store)
    for device in devices:
        if device.name.casefold() == name.casefold():
            return device
    known = ", ".join(d.name for d in devices) or "none"
    raise QuestionError(f"no device {name!r}; devices: {known}")


def roofline_us(flops: int, size_bytes: int, peak: int, device: Device) -> float:
    """Return the microseconds of one kernel, rounded to 2^-20 us; 0.0 if it does nothing.

    Args:
        flops: floating-point operations.
        size_bytes: bytes read and written.
        peak: FLOP/s for its number format.
        device: where it runs.
    """
    if not flops and not size_bytes:
        return 0.0  # launches nothing
    seconds = max(flops / peak, size_bytes / device.bandwidth_bytes_per_second)
    return round((seconds * 1e6 + device.launch_overhead_us) * _GRID) / _GRID


_OPS = "SELECT macs, pointwise_flops, bytes_read, bytes_written, is_view FROM ops"


def op_times(store: Store, profile_id: int, device: Device) -> list[float]:
    """Return the roofline time of every operator in microseconds, by operator id.

    The number format is the profile's, for contractions under autocast that of autocast; views
    take no time. The view ``op_times`` says the same in SQL.

    Raises:
        QuestionError: if the device has no peak for a number format of the profile.
    """
    dtype, autocast = rows_of(store, "SELECT dtype, autocast FROM profiles", profile_id)[0]
    pointwise_peak = device.peak(dtype)
    contraction_peak = device.peak(autocast or dtype)
    return [
        0.0
        if is_view
        else roofline_us(
            2 * macs + pointwise,
            read + written,
            contraction_peak if macs else pointwise_peak,
            device,
        )
        for macs, pointwise, read, written, is_view in rows_of(store, _OPS, profile_id, "op_id")
    ]
