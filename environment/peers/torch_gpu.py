#!/usr/bin/env python3
"""The PyTorch side of "lockstep gpu bench": one process on one GPU, steered by lines.

    torch_gpu.py --mode eager --precision bf16 [--base 64 --depth 4 --height 512 --width 512 --batch 16]
    torch_gpu.py --mode max-autotune --precision bf16 --bias --base 8 --height 768 --width 1024 --batch 16
    torch_gpu.py --mode default --network resnet50v2 --batch 256   (or resnet152v2, unet3d-sc21)

It says what it is in one line of JSON, then answers each line that it reads by
one line of JSON, and ends with its input. Between two requests it is idle, so
that two programs can be measured in turns:

    {"name": "PyTorch 2.11.0, eager, bf16", "device": "NVIDIA H200", "parameters": 31036481, "flops_per_image": 1155194290176, ...}
    step      -> {"seconds": 0.061, "loss": 0.693}   one step, the device idle before and after
    steps 50  -> {"seconds": 2.9, "loss": 0.52}      fifty steps in a row, the device idle before and after
    memory    -> {"peak_bytes": 989855744}           most memory that its tensors took on the device

A step is forward, loss, backward and Adam (fused) on images and masks that lie on
the device already, in their layout, another batch each time. The network is
channels-last with cudnn.benchmark on (over as many algorithms as PyTorch tries by
itself). Precision bf16 and fp16 are autocast (fp16 with a gradient scaler), tf32
lets matrix products and convolutions use TF32, fp32 forbids it. Mode eager runs as
written; default and max-autotune put network and loss, with their gradients,
through torch.compile as one graph, whose compilation happens before the first line
is printed; max-autotune also records CUDA graphs.

With --device cpu it runs without a GPU, to test the script itself.

Exit code 3: PyTorch, or the GPU, is missing.
"""

import argparse
import gc
import json
import os
import sys
import time

BATCHES = 4  # that lie on the device and are taken in turns


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mode", choices=("eager", "default", "max-autotune"), default="eager")
    p.add_argument("--precision", choices=("bf16", "fp16", "tf32", "fp32"), default="bf16")
    p.add_argument("--network", choices=("unet2d", "resnet50v2", "resnet152v2", "unet3d-sc21"), default="unet2d", help="the others have a size of their own")
    p.add_argument("--base", type=int, default=64, help="channels of the first level")
    p.add_argument("--depth", type=int, default=4, help="levels above the bridge")
    p.add_argument("--bias", action="store_true", help="convolutions before a batch norm have a bias, as in the study's network")
    p.add_argument("--height", type=int, default=512)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--warmup", type=int, default=10, help="steps before the first line, in which plans are chosen")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return p.parse_args()


ARGS = arguments()

try:
    import torch
    import torch.nn as nn

    from torch_networks import build
except ImportError as e:
    print(f"{e}: this needs PyTorch with CUDA", file=sys.stderr)
    sys.exit(3)

if ARGS.device == "cuda" and not torch.cuda.is_available():
    print(f"PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
    sys.exit(3)


def idle():
    """Waits until the device has done everything."""
    if ARGS.device == "cuda":
        torch.cuda.synchronize()


class Loss(nn.Module):
    """Network and loss, so that they are compiled together."""

    def __init__(self, network, loss):
        super().__init__()
        self.network, self.loss = network, loss
        self.device, self.kind = ARGS.device, {"bf16": torch.bfloat16, "fp16": torch.float16}.get(ARGS.precision)

    def forward(self, image, target):
        with torch.autocast(self.device, dtype=self.kind or torch.bfloat16, enabled=self.kind is not None):
            return self.loss(self.network(image).float(), target)


def grad_scaler(enabled):
    """torch.amp.GradScaler, or what it was called before PyTorch 2.3."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(ARGS.device, enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


class Train:
    """Steps of training."""

    def __init__(self):
        torch.manual_seed(0)
        tf32 = ARGS.precision == "tf32"
        # These two names are in every version; with only them no two settings disagree.
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        net = build(ARGS.network, ARGS)
        flops = net.flops_per_image()
        layout = torch.channels_last if len(net.image) == 3 else torch.channels_last_3d
        model = net.model.to(ARGS.device, memory_format=layout)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **({"fused": True} if ARGS.device == "cuda" else {}))
        self.loss = Loss(model, net.loss)
        self.mark = lambda: None
        if ARGS.mode != "eager":
            self.loss = torch.compile(self.loss, mode=ARGS.mode, dynamic=False)
            # What the step before gave may be overwritten by the recorded graphs.
            self.mark = torch.compiler.cudagraph_mark_step_begin
        self.scaler = grad_scaler(ARGS.precision == "fp16" and ARGS.device == "cuda")
        self.images, self.targets = [], []
        for _ in range(BATCHES):
            self.images.append(torch.rand((ARGS.batch, *net.image), device=ARGS.device).contiguous(memory_format=layout))
            target = net.draw_targets(ARGS.batch, ARGS.device)
            self.targets.append(target.contiguous(memory_format=layout) if target.dim() > 1 else target)
        self.count = 0
        begin = time.perf_counter()
        loss = self.run(ARGS.warmup)
        idle()
        self.about = {
            "name": f"PyTorch {torch.__version__}, {ARGS.mode}, {ARGS.precision}",
            "device": torch.cuda.get_device_name() if ARGS.device == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "cudnn": torch.backends.cudnn.version() or 0,
            "parameters": sum(p.numel() for p in model.parameters()),
            "flops_per_image": flops,
            "warmup_seconds": time.perf_counter() - begin,
            "warmup_loss": float(loss),
        }
        if ARGS.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def run(self, steps):
        loss = None
        for _ in range(steps):
            image = self.images[self.count % BATCHES]
            target = self.targets[self.count % BATCHES]
            self.count += 1
            self.optimizer.zero_grad(set_to_none=True)
            self.mark()
            loss = self.loss(image, target)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss

    def steps(self, count):
        gc.collect()  # now, and not among the steps
        idle()
        begin = time.perf_counter()
        loss = self.run(int(count))
        idle()
        return {"seconds": time.perf_counter() - begin, "loss": float(loss)}

    def step(self):
        return self.steps(1)

    def memory(self):
        return {"peak_bytes": torch.cuda.max_memory_allocated() if ARGS.device == "cuda" else 0}


def main():
    # What a library prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    task = Train()
    answer(task.about)
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        request, *rest = line.split()
        if request not in ("step", "steps", "memory"):
            answer({"error": f"{request} is not known"})
            continue
        answer(getattr(task, request)(*rest))


if __name__ == "__main__":
    main()
