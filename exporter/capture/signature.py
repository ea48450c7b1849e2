"""One operator call, as it is passed from hand to hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from exporter.capture.operators import OpInfo
    from exporter.capture.state import Recording, TensorRecord


class Signature:
    """A call, its operands flattened, and the key under which its result is remembered."""

    __slots__ = (
        "args",
        "hosts",
        "info",
        "key",
        "knowns",
        "kwargs",
        "op_id",
        "recording",
        "tensors",
        "unknown",
        "uses",
    )

    def __init__(
        self,
        recording: Recording,
        info: OpInfo,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        knowns: list[TensorRecord],
        tensors: list[torch.Tensor],
        uses: list[tuple[int, int, int, bool]],
    ) -> None:
        self.recording = recording
        self.info = info
        self.op_id = recording.op_count
        self.key = key
        self.args = args
        self.kwargs = kwargs
        self.knowns = knowns  # operands that are tensors, flat
        self.tensors = tensors  # the same
        self.uses = uses  # rows of tensor_uses, the same
        self.hosts = 0  # operands in host memory
        self.unknown = not info.valued  # the result's values do not follow from known values
        for known in knowns:
            if known.spec.host:
                self.hosts += 1
            else:
                value = known.storage.value
                if value is None or value.certainty:  # not KNOWN
                    self.unknown = True

    @property
    def makes_host_tensor(self) -> bool:
        """Whether the call, if it is one of a factory, makes a tensor in host memory."""
        device = self.kwargs.get("device")
        return device is None or device.type == "cpu"
