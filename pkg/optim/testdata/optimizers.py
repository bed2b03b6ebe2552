#!/usr/bin/env python3
"""Writes optimizers.json: what PyTorch's optimisers make of the same gradients.

    python3 optimizers.py > optimizers.json

SGD, Adam, AdamW and clipping are torch.optim's and torch.nn.utils'. LARS and
LAMB, which PyTorch has not, are written down here from the papers
(arXiv:1708.03888, algorithm 1; arXiv:1904.00962, algorithm 2) with torch's
vector operations. All in double precision; two matrices and a vector, 5 steps.
"""

import json
import torch

torch.set_default_dtype(torch.float64)
STEPS, SHAPES = 5, [(3, 4), (2, 3), (5,)]


def numbers():
    g = torch.Generator().manual_seed(7)
    weights = [torch.randn(s, generator=g) for s in SHAPES]
    gradients = [[torch.randn(s, generator=g) for s in SHAPES] for _ in range(STEPS)]
    return weights, gradients


class LARS:
    def __init__(self, params, lr, momentum, weight_decay, trust):
        self.p, self.lr, self.mu, self.wd, self.eta = params, lr, momentum, weight_decay, trust
        self.v = [torch.zeros_like(p) for p in params]

    def step(self):
        for p, v in zip(self.p, self.v):
            w, g = p.data, p.grad
            if w.dim() == 1:
                local, decay = 1.0, 0.0
            else:
                decay = self.wd
                local = self.eta * w.norm() / (g.norm() + decay * w.norm())
            v.mul_(self.mu).add_(self.lr * local * (g + decay * w))
            w.sub_(v)


class LAMB:
    def __init__(self, params, lr, betas, eps, weight_decay):
        self.p, self.lr, self.b, self.eps, self.wd, self.t = params, lr, betas, eps, weight_decay, 0
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    def step(self):
        self.t += 1
        for p, m, v in zip(self.p, self.m, self.v):
            w, g = p.data, p.grad
            m.copy_(self.b[0] * m + (1 - self.b[0]) * g)
            v.copy_(self.b[1] * v + (1 - self.b[1]) * g ** 2)
            r = (m / (1 - self.b[0] ** self.t)) / ((v / (1 - self.b[1] ** self.t)).sqrt() + self.eps)
            if w.dim() == 1:
                w.sub_(self.lr * r)
                continue
            r = r + self.wd * w
            w.sub_(self.lr * w.norm() / r.norm() * r)


ADAM = dict(beta1=0.9, beta2=0.999, epsilon=1e-8)
CASES = [
    ("sgd", dict(name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.01), 0),
    ("sgd, nesterov", dict(name="sgd", learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), 0),
    ("sgd, clipped", dict(name="sgd", learning_rate=0.1, momentum=0.9, clip_norm=1.5), 1.5),
    ("adam", dict(name="adam", learning_rate=0.05, weight_decay=0.01, **ADAM), 0),
    ("adam, clipped", dict(name="adam", learning_rate=0.05, clip_norm=4.5, **ADAM), 4.5),
    ("adamw", dict(name="adamw", learning_rate=0.05, weight_decay=0.1, **ADAM), 0),
    ("lars", dict(name="lars", learning_rate=2.0, momentum=0.9, weight_decay=0.01, trust=0.02), 0),
    ("lamb", dict(name="lamb", learning_rate=0.05, weight_decay=0.1, **ADAM), 0),
]


def make(c, params):
    betas = (c.get("beta1"), c.get("beta2"))
    if c["name"] == "sgd":
        return torch.optim.SGD(params, c["learning_rate"], c["momentum"], weight_decay=c.get("weight_decay", 0), nesterov=c.get("nesterov", False))
    if c["name"] == "adam":
        return torch.optim.Adam(params, c["learning_rate"], betas, c["epsilon"], c.get("weight_decay", 0))
    if c["name"] == "adamw":
        return torch.optim.AdamW(params, c["learning_rate"], betas, c["epsilon"], c["weight_decay"])
    if c["name"] == "lars":
        return LARS(params, c["learning_rate"], c["momentum"], c["weight_decay"], c["trust"])
    return LAMB(params, c["learning_rate"], betas, c["epsilon"], c["weight_decay"])


def flat(tensors):
    return [t.flatten().tolist() for t in tensors]


weights, gradients = numbers()
out = {"torch": torch.__version__, "vector": [len(s) == 1 for s in SHAPES],
       "weights": flat(weights), "gradients": [flat(g) for g in gradients], "cases": []}
for name, config, clip in CASES:
    params = [torch.nn.Parameter(w.clone()) for w in weights]
    optimizer = make(config, params)
    for step in gradients:
        for p, g in zip(params, step):
            p.grad = g.clone()
        if clip:
            torch.nn.utils.clip_grad_norm_(params, clip)
        optimizer.step()
    out["cases"].append({"name": name, "config": config, "after": flat([p.data for p in params])})
print(json.dumps(out, indent=1))
