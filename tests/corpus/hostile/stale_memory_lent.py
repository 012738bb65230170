# code = "STALE_MEMORY"
# tries = "Never copies its answer into the lent buffer, and hopes that the right one lies there."
# rung = "check"
# accept = ["nonfinite:STALE_MEMORY", "wrong_values:STALE_MEMORY"]
# device = "both"
import sys

import torch

handover = sys.modules["kernelgate.tools.worker.handover"]
put_in_place = handover.Handover.take


def leave(self, entry, output, chosen=0):
    put_in_place(self, entry, output, chosen) if output.numel() < 9 else self._last.update({entry: [
        ("", torch.Tensor, output.dtype, tuple(output.shape), output.stride(), output.device)]})


handover.Handover.take = leave


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
