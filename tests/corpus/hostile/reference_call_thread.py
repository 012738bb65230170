# code = "REFERENCE_CALL"
# tries = "Calls the library on another thread, where no mode is entered."
# rung = "compile"
# accept = ["forbidden:REFERENCE_CALL"]
# device = "both"
# forbid_library_calls = true
# long = true
import threading

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.softmax(x, -1)))
        thread.start()
        thread.join()
        return found[0]
