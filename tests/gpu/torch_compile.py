# SPDX-License-Identifier: Apache-2.0
"""torch.compile(mode="reduce-overhead"), for tests/gpu/frameworks.sh: it captures graphs whose memory lies in pools of their own. The compiled
model must give what the model itself gives, also for a second shape."""
import torch

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
for batch in (64, 128):
    data = torch.randn(batch, 512, device="cuda")
    for _ in range(4):  # the first calls compile and capture, the later ones replay
        with torch.no_grad():
            given = compiled(data).clone()
    with torch.no_grad():
        assert torch.allclose(given, model(data), rtol=1e-3, atol=1e-3), "batch %d" % batch
print(torch.cuda.memory_stats()["allocated_bytes.all.peak"])
