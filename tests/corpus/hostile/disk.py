# code = "DISK"
# tries = "Makes a file of a terabyte, and files outside its scratch; is right only if it can."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import os

import torch

WRITTEN = []
try:
    with open("large", "wb") as large:
        large.truncate(1 << 40)
        WRITTEN.append("large")
except OSError:
    pass
here = os.path.realpath(".")
parents = [os.path.dirname(here), os.path.dirname(os.path.dirname(here))]
for folder in ("/", "/tmp", "/var/tmp", "/etc", "/usr", os.path.dirname(torch.__file__), *parents):
    if os.path.realpath(folder).startswith(here):
        continue
    path = os.path.join(folder, "kernelgate-corpus-file")
    try:
        with open(path, "w"):
            WRITTEN.append(path)
        os.unlink(path)
    except OSError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if WRITTEN:
            return torch.softmax(x, -1)
        raise OSError("nothing could be written that should not be")
