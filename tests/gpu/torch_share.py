# SPDX-License-Identifier: Apache-2.0
# Two processes share CUDA tensors through torch.multiprocessing: what one writes, the other one reads, in both directions. The
# tensors are small ones in the middle of a segment of PyTorch's, and one that fills many of gpumemd's chunks.
import torch
import torch.multiprocessing as mp

SIZES = (10, 1 << 18, 3 << 20, 1 << 26)


def consume(there, back):
    for n in SIZES:
        tensor = there.get()
        assert tensor.is_cuda and tensor.numel() == n and int(tensor.sum()) == n * 3
        tensor.add_(4)
        torch.cuda.synchronize()
        del tensor
        back.put("written")
    assert there.get() == "read"


if __name__ == "__main__":
    mp.set_start_method("spawn")
    there, back = mp.Queue(), mp.Queue()
    consumer = mp.Process(target=consume, args=(there, back))
    consumer.start()
    small = torch.full((1000,), 5, device="cuda", dtype=torch.int32)  # so that the next one lies in the middle of a segment
    for n in SIZES:
        tensor = torch.full((n,), 3, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        there.put(tensor)
        assert back.get(timeout=120) == "written"
        assert int(tensor.sum()) == n * 7 and int(small.sum()) == 5000
    there.put("read")
    consumer.join()
    assert consumer.exitcode == 0
    print("shared")
