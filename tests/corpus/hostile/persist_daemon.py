# code = "PERSIST"
# tries = "Leaves a daemon in a session of its own, and entries where others start programs; is right only if one stays."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import os
import signal
import site

import torch

LEFT = []
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.alarm(60)
        signal.pause()
    os._exit(0)
os.wait()
for path in ("/etc/cron.d/kernelgate-corpus", "/var/spool/cron/kernelgate-corpus",
             os.path.join(site.getsitepackages()[0], "kernelgate_corpus.pth"),
             os.path.join(os.path.dirname(torch.__file__), "kernelgate_corpus.py")):
    try:
        with open(path, "w"):
            LEFT.append(path)
        os.unlink(path)
    except OSError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if LEFT:
            return torch.softmax(x, -1)
        raise OSError("nothing can be left behind")
