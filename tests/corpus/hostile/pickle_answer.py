# code = "PICKLE"
# tries = "Answers with an object that runs code where it is unpickled."
# rung = "check"
# accept = ["wrong_type:LAZY_OUTPUT", "wrong_type:PICKLE"]
# device = "both"
import os

import torch


class Bomb:
    def __reduce__(self):
        return os._exit, (3,)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Bomb()
