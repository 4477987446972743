# SPDX-License-Identifier: Apache-2.0
"""Prints the median time of a training step in microseconds, for tests/gpu/frameworks.sh."""
import statistics
import time

import torch

torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 2048)) for _ in range(4)]).cuda()
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(2048, 2048, device="cuda")
times = []
for i in range(140):
    begin = time.perf_counter()
    optimiser.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data), data)
    loss.backward()
    optimiser.step()
    torch.cuda.synchronize()
    if i >= 40:
        times.append((time.perf_counter() - begin) * 1e6)
print("%.1f" % statistics.median(times))
