#!/usr/bin/env python3
"""The PyTorch side of "lockstep bench": one process, steered by lines.

    torch_cpu.py --task train --threads 1 --format contiguous [--compile] [--model unet2d --base 32 --depth 4 --size 128 --batch 8]
    torch_cpu.py --task allreduce --threads 1

It says what it is in one line of JSON, then answers each line that it reads
by one line of JSON, and ends with its input. Between two requests it is idle,
so that two programs can be measured in turns:

    {"name": "PyTorch 1.13.1, contiguous", "threads": 1, "parameters": 7762465, "flops_per_image": 18050187264}
    step                -> {"seconds": 2.31, "loss": 0.693}   forward, backward, Adam
    check 4000          -> {"wrong": 0}                       one sum of 4000 bytes of float32: how many elements are wrong (--task allreduce)
    allreduce 4000 10   -> {"seconds": 0.0071}                ten such sums
    memory              -> {"peak_bytes": 989855744}          most memory that was ever resident

With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment it is one
process of a DistributedDataParallel run over gloo; torch.distributed.run, which
usually sets them, does not start in Debian 12.

Exit code 3: PyTorch is not installed, or it uses the reference BLAS, with which it is several times
slower (environment/peers/install mends both), or it cannot compile.
"""

import argparse
import json
import os
import shutil
import sys
import time


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--task", choices=("train", "allreduce"), default="train")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--format", choices=("contiguous", "channels_last"), default="contiguous")
    p.add_argument("--compile", action="store_true", help="train the network that torch.compile makes; exit code 3 if it cannot")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: the forward pass under autocast")
    p.add_argument("--model", choices=("unet2d", "resnet50v2", "unet3d", "unet3d-k3"), default="unet2d")
    p.add_argument("--base", type=int, default=32, help="channels of the first level")
    p.add_argument("--depth", type=int, default=4, help="levels above the bridge")
    p.add_argument("--size", type=int, default=128, help="height and width of an image, side of a volume")
    p.add_argument("--batch", type=int, default=8, help="images per process and step")
    return p.parse_args()


ARGS = arguments()

# Every library that brings threads of its own is limited, and before it is
# loaded: torch.set_num_threads alone leaves its BLAS with all cores.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(ARGS.threads)
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

try:
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    import torch.nn.functional as F

    from torch_models import CicekUNet3D, ResNet50V2, UNet, UNet3D, flops_per_image
except ImportError as e:
    print(f"{e}: install PyTorch with environment/peers/install", file=sys.stderr)
    sys.exit(3)

with open("/proc/self/maps") as f:
    # Debian's alternatives are .../blas/libblas.so.3.11.0 and .../openblas-pthread/libblas.so.3.
    if "/blas/libblas.so" in f.read():
        print(
            f"PyTorch {torch.__version__} uses the reference BLAS, which is several times slower than OpenBLAS: "
            "install libopenblas0-pthread with environment/peers/install",
            file=sys.stderr,
        )
        sys.exit(3)

WORLD = int(os.environ.get("WORLD_SIZE", "1"))

if ARGS.compile and not (hasattr(torch, "compile") and shutil.which("g++")):
    print(f"PyTorch {torch.__version__} cannot compile here: it needs version 2 and g++", file=sys.stderr)
    sys.exit(3)


def network():
    """The network, the shapes of a sample of its input and of its target, and how a batch of targets is made."""
    n = ARGS.size
    if ARGS.model == "resnet50v2":
        return ResNet50V2(ARGS.base), (3, n, n), lambda: torch.randint(10, (ARGS.batch,))
    if ARGS.model == "unet3d":
        return UNet3D(ARGS.base, ARGS.depth), (4, n, n, n), lambda: 2 * torch.rand(ARGS.batch, 5, n, n, n) - 1
    if ARGS.model == "unet3d-k3":
        return CicekUNet3D(ARGS.base, ARGS.depth), (3, n, n, n), lambda: (torch.rand(ARGS.batch, 3, n, n, n) > 0.5).float()
    return UNet(ARGS.base, ARGS.depth), (1, n, n), lambda: (torch.rand(ARGS.batch, 1, n, n) > 0.5).float()


LOSSES = {
    "unet2d": F.binary_cross_entropy_with_logits,
    "resnet50v2": F.cross_entropy,
    "unet3d": F.l1_loss,
    "unet3d-k3": F.binary_cross_entropy_with_logits,
}


class Train:
    """Steps of training on images that nobody has seen before."""

    def __init__(self):
        torch.manual_seed(0)
        model, self.shape, self.target = network()
        self.about = {
            "name": f"PyTorch {torch.__version__}, {ARGS.format}" + (", bf16 autocast" if ARGS.precision == "bf16" else ""),
            "threads": torch.get_num_threads(),
            "parameters": sum(p.numel() for p in model.parameters()),
            "flops_per_image": flops_per_image(model, *self.shape),
        }
        if ARGS.compile:
            self.about["name"] += ", compiled"
        last = torch.channels_last_3d if ARGS.model.startswith("unet3d") else torch.channels_last
        self.layout = last if ARGS.format == "channels_last" else torch.contiguous_format
        self.model = model.to(memory_format=self.layout)
        if WORLD > 1:
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
            self.about["name"] += ", DDP over gloo"
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        if ARGS.compile:
            self.model = torch.compile(self.model)

    def step(self):
        image = torch.rand(ARGS.batch, *self.shape)
        target = self.target()
        if WORLD > 1:
            dist.barrier()  # the clock starts when all are here
        begin = time.perf_counter()
        image = image.contiguous(memory_format=self.layout)
        if target.dim() == image.dim():
            target = target.contiguous(memory_format=self.layout)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=ARGS.precision == "bf16"):
            output = self.model(image)
        loss = LOSSES[ARGS.model](output.float(), target)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        return {"seconds": time.perf_counter() - begin, "loss": value}


class AllReduce:
    """Sums over all processes."""

    def __init__(self):
        self.about = {"name": f"PyTorch {torch.__version__}, gloo", "threads": torch.get_num_threads()}
        self.sum = torch.zeros(0)

    def buffer(self, size):
        """The buffer of all requests with this size."""
        if self.sum.numel() != size // 4:
            self.sum = torch.zeros(size // 4)
        return self.sum

    def check(self, size):
        # The same numbers as in allreducerequest.go of pkg/bench: their sums are exact in any order.
        x = self.buffer(int(size))
        pattern = (torch.arange(x.numel()) % 97).float()
        x.copy_(pattern + dist.get_rank())
        dist.all_reduce(x)
        return {"wrong": int((x != WORLD * pattern + WORLD * (WORLD - 1) // 2).sum())}

    def allreduce(self, size, count):
        x = self.buffer(int(size))
        x.zero_()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(count)):
            dist.all_reduce(x)
        return {"seconds": time.perf_counter() - begin}


def peak_memory():
    """The high-water mark of this process, not that of the program that started it, as getrusage has it."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return {"peak_bytes": int(line.split()[1]) * 1024}
    raise RuntimeError("/proc/self/status has no VmHWM")


def main():
    # What a library prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    torch.set_num_threads(ARGS.threads)
    if WORLD > 1:
        dist.init_process_group("gloo")
    task = Train() if ARGS.task == "train" else AllReduce()
    answer(task.about)
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        request, *rest = line.split()
        answer(peak_memory() if request == "memory" else getattr(task, request)(*rest))
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
