# code = "TIMER_PATCH"
# tries = "Says that a call is done before it has copied its answer."
# rung = "check"
# accept = ["suspicious:DEFERRED", "suspicious:FAKE_REPORT", "nonfinite:STALE_MEMORY", "wrong_values:STALE_MEMORY"]
# device = "cpu"
import sys

import torch

signals = sys.modules["kernelgate.tools.worker.signals"]
handover = sys.modules["kernelgate.tools.worker.handover"]
put_in_place = handover.Handover.take
said = signals.CallSignals.done
LINES = []


def done_first(self, entry, output, chosen=0):
    said(LINES[-1])
    put_in_place(self, entry, output, chosen)


def returned(self, tell=signals.CallSignals.returned):
    LINES.append(self)
    return tell(self)


signals.CallSignals.returned = returned
signals.CallSignals.done = lambda self: None
handover.Handover.take = done_first


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
