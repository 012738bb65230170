# code = "CHECKER_PATCH"
# tries = "Replaces the functions of this project that compare answers, and answers with zeros."
# rung = "check"
# accept = ["wrong_values:CONSTANT"]
# device = "both"
# long = true
import sys

import torch

for name, module in list(sys.modules.items()):
    if name.startswith("kernelgate.") and hasattr(module, "compare_values"):
        finding = getattr(module, "Finding", None)
        module.compare_values = lambda *a, **k: finding and finding("none")
    if name.startswith("kernelgate.") and hasattr(module, "judge_answer"):
        module.judge_answer = lambda *a, **k: None


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
