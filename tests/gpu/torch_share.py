# SPDX-License-Identifier: Apache-2.0
# Two processes share a CUDA tensor through torch.multiprocessing: what one writes, the other one reads, in both directions.
import torch
import torch.multiprocessing as mp


def consume(there, back):
    tensor = there.get()
    assert tensor.is_cuda and int(tensor.sum()) == tensor.numel() * 3
    tensor.add_(4)
    torch.cuda.synchronize()
    back.put("written")
    assert there.get() == "read"


if __name__ == "__main__":
    mp.set_start_method("spawn")
    there, back = mp.Queue(), mp.Queue()
    consumer = mp.Process(target=consume, args=(there, back))
    consumer.start()
    small = torch.full((1000,), 5, device="cuda", dtype=torch.int32)  # so that the next one lies in the middle of a segment
    tensor = torch.full((1 << 18,), 3, device="cuda", dtype=torch.int32)
    torch.cuda.synchronize()
    there.put(tensor)
    assert back.get(timeout=120) == "written"
    assert int(tensor.sum()) == tensor.numel() * 7 and int(small.sum()) == 5000
    there.put("read")
    consumer.join()
    assert consumer.exitcode == 0
    print("shared")
