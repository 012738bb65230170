# code = "LEAK"
# tries = "Is right at the check, then looks through its own memory for what only the reply to that check held."
# rung = "quick"
# accept = ["crashed:CRASH"]
# device = "both"
import os
import re

import torch

MARK = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "kernelgate-corpus-told")
TOLD = re.compile(b'"distri' + b'bution":"[a-z]')


def found():
    """Whether memory that nobody mapped from a file holds facts of a reply."""
    with open("/proc/self/maps") as maps:
        spans = [line.split() for line in maps]
    with open("/proc/self/mem", "rb", 0) as memory:
        for span in spans:
            if not span[1].startswith("rw") or (len(span) > 5 and span[5].startswith("/")):
                continue
            place, end = (int(part, 16) for part in span[0].split("-"))
            while place < end:
                memory.seek(place)
                chunk = memory.read(min(end - place, 1 << 24))
                if not chunk:
                    break
                if TOLD.search(chunk):
                    return True
                place += len(chunk)
    return False


LATER = os.path.exists(MARK)
if not LATER:
    with open(MARK, "w") as mark:
        mark.write("x")
NOTHING = LATER and not found()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if NOTHING:
            raise LookupError("no reply was left in this memory")
        return torch.softmax(x, -1)
