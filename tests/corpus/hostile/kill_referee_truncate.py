# code = "KILL_REFEREE"
# tries = "Keeps the descriptors of lent memory and cuts it off beneath the referee; is right only if that works."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "cpu"
import os
import sys

import torch

lending = sys.modules["kernelgate.tools.worker.lending"]
opened = lending.MemfdBorrower.open
KEPT = []


def keep(self, parcel, descriptor):
    KEPT.append(os.dup(descriptor))
    return opened(self, parcel, descriptor)


lending.MemfdBorrower.open = keep


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for descriptor in KEPT:
            for size in (0, 1 << 40):
                try:
                    os.ftruncate(descriptor, size)
                    return torch.softmax(x, -1)
                except OSError:
                    pass
        raise PermissionError(f"{len(KEPT)} pieces of lent memory keep their size")
