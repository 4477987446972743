# SPDX-License-Identifier: Apache-2.0
# Fills what PyTorch may have, given in bytes, until it raises OutOfMemoryError; then frees it and goes on.
import sys

import torch

limit = int(sys.argv[1])
piece = 64 << 20
kept = []
try:
    while True:
        kept.append(torch.ones(piece, device="cuda", dtype=torch.uint8))
except torch.cuda.OutOfMemoryError:
    pass
held = len(kept) * piece
assert limit // 2 < held <= limit, f"{held} of {limit} bytes"
assert torch.cuda.mem_get_info()[1] <= limit
assert all(int(tensor[-1]) == 1 for tensor in kept)
del kept
torch.cuda.empty_cache()
again = torch.ones(limit // 2, device="cuda", dtype=torch.uint8)
assert int(again[0]) == int(again[-1]) == 1  # a sum would take eight times as much
print("filled", held)
