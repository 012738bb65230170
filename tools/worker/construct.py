"""What a candidate is asked to build its model with: arguments, weights by name, the public weight seed."""

from typing import Any

import torch

from kernelgate.tasks.model import Task
from kernelgate.tools.worker.lending import Lender, Loan
from kernelgate.tools.worker.protocol import Construct
from kernelgate.tools.worker.reference import HeldWorkload
from kernelgate.tools.worker.structure import encode


def construction(task: Task, held: HeldWorkload, lender: Lender) -> tuple[Construct, Loan | None]:
    """The question, and the loan that goes with it: tensors among the arguments, and the reference's state."""
    built = held.built
    copied: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> int:
        copied.append(tensor.detach())
        return len(copied) - 1

    arguments = encode(built.init_arguments, place)
    state: dict[str, Any] = built.module.state_dict()
    parameters = {name: place(value) for name, value in state.items() if isinstance(value, torch.Tensor)}
    loan = lender.lend(copied, ()) if copied else None
    question = Construct(
        arguments=arguments,
        weight_seed=task.weight_seed,
        training=built.module.training,
        parcel=loan.parcel if loan else None,
        parameters=parameters,
    )
    return question, loan
