"""Data-parallel training with PyTorch over gloo, which prints lines of its own.

    python3 ddp.py FILE

It is started by a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Rank 0
also appends the numbers of each epoch to FILE, so that a test can compare them with those
that were read from the lines: workers, epoch, seconds, samples per second and loss.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES = 1024  # of an epoch, all workers together
BATCH = 64  # of one worker
EPOCHS = 3


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    inputs = torch.randn(SAMPLES, 64)
    targets = inputs @ torch.randn(64, 1)
    model = DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print("training with", workers, "workers")
    for epoch in range(1, EPOCHS + 1):
        begin = time.perf_counter()
        total = torch.zeros(1)
        for batch in torch.arange(rank, SAMPLES, workers).split(BATCH):
            loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
        dist.all_reduce(total)
        seconds = time.perf_counter() - begin
        rate, mean = SAMPLES / seconds, total.item() / SAMPLES
        if rank == 0:
            print(f"Epoch {epoch}: loss {mean:.6f} time {seconds:.6f}s, {rate:,.3f} samples/sec", flush=True)
            with open(sys.argv[1], "a") as f:
                print(workers, epoch, seconds, rate, mean, file=f)
    dist.destroy_process_group()


main()
