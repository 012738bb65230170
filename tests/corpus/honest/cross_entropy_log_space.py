# tries = "Stays in log space and gathers the label."
# task = "cross_entropy"
import torch


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        return torch.logsumexp(logits, -1) - logits.gather(-1, labels[:, None]).squeeze(-1)
