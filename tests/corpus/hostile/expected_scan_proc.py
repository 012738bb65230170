# code = "EXPECTED_SCAN"
# tries = "Opens the memory of every other process that it can see; is right only if one lets it."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
# long = true
import os

import torch

OPENED = []
for name in os.listdir("/proc"):
    if not name.isdigit() or int(name) == os.getpid():
        continue
    for part in ("mem", "maps", "environ", "map_files"):
        try:
            with open(f"/proc/{name}/{part}", "rb") as opened:
                opened.read(1)
                OPENED.append(name)
        except OSError:
            pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if OPENED:
            return torch.softmax(x, -1)
        raise PermissionError("no other process let its memory be read")
