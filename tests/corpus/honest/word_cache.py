# tries = "Has the words cache, replay, expected and time in names and comments."
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        # The cache of expected replay times: nothing of that is one.
        cache_of_expected_replay = torch.softmax(x, -1)
        return cache_of_expected_replay
