# tries = "Has buffers of its own that it fills at its first call."
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.zeros(()))
        self.register_buffer("ready", torch.tensor(False), persistent=False)

    def forward(self, x):
        if not bool(self.ready):
            self.scale.fill_(1.0)
            self.ready.fill_(True)
        return torch.softmax(x * self.scale, -1)
