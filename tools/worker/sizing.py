"""How large a workload is: bytes, operations, and the dtype of most of it."""

from dataclasses import dataclass

import torch

from kernelgate.tools.worker import memory
from kernelgate.tools.worker.structure import tensors_in


@dataclass(frozen=True)
class Sizes:
    """What one forward of a reference moves and does."""

    inputs_bytes: int
    weights_bytes: int
    outputs_bytes: int
    flops: int
    read_bytes: int
    """What of inputs and weights forward reads."""
    dtype: torch.dtype = torch.float32
    """Of most of the inputs and weights, among floats."""
    degenerate: bool = False
    """A norm was taken over hardly anything: the answer has lost what it is made of."""
    doubles: bool = False
    """An input, a weight or an answer is float64."""

    @property
    def call_bytes(self) -> int:
        """Memory that a comparison needs, both processes together."""
        return memory.call_bytes(self.inputs_bytes, self.outputs_bytes, self.weights_bytes)


def byte_size(value: object) -> int:
    """Bytes of the elements of all tensors in a nested value."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def main_dtype(tensors: list[torch.Tensor]) -> torch.dtype:
    """The float dtype with the most elements; float32 where there is none."""
    elements: dict[torch.dtype, int] = {}
    for tensor in tensors:
        if tensor.dtype.is_floating_point:
            elements[tensor.dtype] = elements.get(tensor.dtype, 0) + tensor.numel()
    return max(elements, key=lambda dtype: elements[dtype], default=torch.float32)
