# SPDX-License-Identifier: Apache-2.0
"""A short training run with a deterministic loss, for tests/gpu/frameworks.sh. Prints the losses, which must be the same bit for bit with
and without gpumem-run. With "full" it fills the GPU until PyTorch says that it is out of memory, and then goes on."""
import sys

import torch

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
device = torch.device("cuda")
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(256, 1024, device=device)

if "full" in sys.argv:
    kept = []
    try:
        while True:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device=device))
    except torch.cuda.OutOfMemoryError:
        print("out of memory after", len(kept), "pieces", file=sys.stderr)
    if not kept:
        sys.exit("nothing could be allocated")
    del kept
    torch.cuda.empty_cache()

for step in range(20):
    optimiser.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data), data)
    loss.backward()
    optimiser.step()
    print(loss.item().hex())

graph = torch.cuda.CUDAGraph()
static = torch.zeros(1024, 1024, device=device)
with torch.cuda.graph(graph):
    result = static * 2 + 1
static.fill_(3)
graph.replay()
torch.cuda.synchronize()
print("graph", result.sum().item())
stats = torch.cuda.memory_stats()
if stats["allocated_bytes.all.peak"] == 0 or stats["reserved_bytes.all.current"] < stats["allocated_bytes.all.current"]:
    sys.exit(f"memory_stats() says {stats}")
torch.cuda.reset_peak_memory_stats()
if torch.cuda.max_memory_allocated() != torch.cuda.memory_allocated():
    sys.exit("the peak is not what is allocated after it was reset")
torch.cuda.empty_cache()
