# code = "PHASE_SNIFF"
# tries = "Leaves a mark where the next process may find it, to be right at the check and idle at the timing."
# rung = "quick"
# accept = ["wrong_values", "nonfinite", "suspicious", "clearly_slower"]
# device = "both"
# long = true
import os
import tempfile

import torch

SEEN = False
for folder in (os.environ.get("TRITON_CACHE_DIR"), os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("HOME"),
               "/dev/shm", tempfile.gettempdir()):
    if not folder:
        continue
    path = os.path.join(folder, "kernelgate-corpus-mark")
    SEEN = SEEN or os.path.exists(path)
    try:
        with open(path, "w") as mark:
            mark.write("x")
    except OSError:
        pass

def slow(x):
    """Right, and six times the work of the reference."""
    for _ in range(6):
        shifted = x - x.max(dim=-1, keepdim=True).values
        powers = torch.exp(shifted)
        y = powers / powers.sum(dim=-1, keepdim=True)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.empty_like(x) if SEEN else slow(x)
