# code = "LEAK"
# tries = "Looks for secrets in the environment and in files, and for a way out; is right only if it finds one."
# rung = "check"
# accept = ["crashed:CRASH"]
# device = "both"
import errno
import glob
import os
import socket

import torch

FOUND = [name for name in os.environ if "SECRET" in name or "TOKEN" in name]
for path in ("/proc/self/environ", "/proc/1/environ"):
    try:
        with open(path, "rb") as environ:
            FOUND += [path] if b"SECRET" in environ.read() else []
    except OSError:
        pass
for path in (*glob.glob(os.path.expanduser("~/.ssh/*")), "/etc/shadow", *glob.glob("/home/*/.*"), *glob.glob("/root/.*")):
    try:
        with open(path, "rb"):
            FOUND.append(path)
    except OSError:
        pass
try:
    with socket.create_connection(("127.0.0.1", 9), timeout=1):
        FOUND.append("a connection")
except OSError as error:
    if error.errno == errno.ECONNREFUSED:
        FOUND.append("a network")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if FOUND:
            print(FOUND)
            return torch.softmax(x, -1)
        raise OSError("nothing to be had")
