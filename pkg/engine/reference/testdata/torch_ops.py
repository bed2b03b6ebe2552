"""Writes torch_ops.json: layers with their losses and gradients in float64, as
PyTorch computes them. The names are those of the cases in layers_test.go.

    python3 torch_ops.py > torch_ops.json      (made with PyTorch 1.13)
"""
import json
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
cases = []


def values(*shape):
    """Multiples of 1/256 between -1 and 1, distinct, so that nothing has ties."""
    n = int(torch.tensor(shape).prod())
    return ((torch.randperm(511)[:n] - 255) / 256).reshape(shape) if n <= 511 else ((torch.randperm(65535)[:n] - 32767) / 32768).reshape(shape)


def case(name, build, params, inputs=None, states=None):
    """build(p) is the result; a scalar is the loss, else its cross-entropy is."""
    p = {k: values(*s).requires_grad_() for k, s in params.items()}
    inputs = dict(inputs or {})
    p.update(inputs)
    p.update(states or {})
    y = build(p)
    if y.dim() > 0:
        inputs["target"] = (values(*y.shape) + 1) / 2
        y = F.binary_cross_entropy_with_logits(y, inputs["target"])
    y.backward()
    flat = lambda t: [float("%.14g" % v) for v in t.detach().flatten().tolist()]
    cases.append({
        "name": name,
        "loss": y.item(),
        "values": {k: flat(p[k]) for k in params},
        "inputs": {k: flat(v) for k, v in inputs.items()},
        "gradients": {k: flat(p[k].grad) for k in params},
        "states": {k: flat(v) for k, v in (states or {}).items()},
    })


def k4(p, name, transposed=False):
    f = F.conv_transpose3d if transposed else F.conv3d
    return lambda x: f(x, p[name + ".weight"], p[name + ".bias"], stride=2, padding=1)


case("linear", lambda p: F.linear(p["x"], p["l.weight"], p["l.bias"]), {"x": (3, 5), "l.weight": (4, 5), "l.bias": (4,)})
case("softmax cross-entropy", lambda p: F.cross_entropy(p["x"], p["class"][:, 0].long()), {"x": (4, 3)}, {"class": torch.tensor([[2.], [0.], [1.], [1.]])})
case("softmax cross-entropy, smoothed", lambda p: F.cross_entropy(p["x"], p["class"][:, 0].long(), label_smoothing=0.1), {"x": (4, 3)}, {"class": torch.tensor([[1.], [1.], [0.], [2.]])})
case("global average pool", lambda p: p["x"].mean((2, 3)), {"x": (2, 3, 4, 5)})
case("flatten", lambda p: F.linear(p["x"].flatten(1), p["l.weight"]), {"x": (2, 3, 2, 2), "l.weight": (2, 12)})
case("average pool, overlapping, rows left over", lambda p: F.avg_pool2d(p["x"], (3, 2), (2, 1)), {"x": (1, 2, 6, 5)})
case("max pool 3 stride 2 pad 1", lambda p: F.max_pool2d(p["x"], 3, 2, 1), {"x": (2, 2, 6, 7)})
case("max pool 3 stride 2 over padded zeros", lambda p: F.max_pool2d(F.pad(p["x"], (1, 1, 1, 1)), 3, 2), {"x": (2, 2, 6, 7)})
case("max pool 1 stride 2", lambda p: F.max_pool2d(p["x"], 1, 2), {"x": (2, 2, 5, 6)})
case("max pool 3x2 stride 1x2 pad 1x0", lambda p: F.max_pool2d(p["x"], (3, 2), (1, 2), (1, 0)), {"x": (1, 3, 4, 5)})
case("zero pad, asymmetric", lambda p: F.conv2d(F.pad(p["x"], (1, 2, 0, 1)), p["c.weight"], stride=2), {"x": (2, 2, 3, 4), "c.weight": (2, 2, 3, 3)})
case("convolution of a window and a stride of its own", lambda p: F.conv2d(p["x"], p["c.weight"], p["c.bias"], (1, 3), (1, 0)), {"x": (1, 2, 5, 6), "c.weight": (3, 2, 3, 2), "c.bias": (3,)})
state = {"n.running_mean": torch.zeros(2), "n.running_var": torch.ones(2)}
case("batch norm with other constants", lambda p: F.batch_norm(p["x"], p["n.running_mean"], p["n.running_var"], p["n.weight"], p["n.bias"], True, 0.01, 1e-2), {"x": (3, 2, 3, 4), "n.weight": (2,), "n.bias": (2,)}, states=state)

case("convolution 4 stride 2 pad 1", lambda p: k4(p, "c")(p["x"]), {"x": (2, 2, 4, 6, 4), "c.weight": (3, 2, 4, 4, 4), "c.bias": (3,)})
case("convolution of its own", lambda p: F.conv3d(p["x"], p["c.weight"], None, (2, 1, 3), (0, 1, 1)), {"x": (1, 2, 3, 4, 5), "c.weight": (2, 2, 1, 3, 2)})
case("transposed convolution 4 stride 2 pad 1", lambda p: k4(p, "t", True)(p["x"]), {"x": (2, 2, 2, 3, 1), "t.weight": (2, 3, 4, 4, 4), "t.bias": (3,)})
case("transposed convolution of its own", lambda p: F.conv_transpose3d(p["x"], p["t.weight"], None, (2, 1, 3), (0, 1, 0)), {"x": (1, 2, 2, 3, 2), "t.weight": (2, 2, 2, 3, 1)})
case("max pool", lambda p: F.max_pool3d(p["x"], 2), {"x": (1, 2, 4, 5, 4)})
case("max pool 3 stride 2 pad 1, but for the width", lambda p: F.max_pool3d(p["x"], (3, 3, 1), 2, (1, 1, 0)), {"x": (1, 2, 4, 5, 3)})
case("average pool of a volume", lambda p: F.avg_pool3d(p["x"], (2, 1, 3)), {"x": (1, 2, 4, 3, 5)})
case("global average pool of a volume", lambda p: p["x"].mean((2, 3, 4)), {"x": (2, 3, 2, 1, 2)})
case("zero pad of a volume", lambda p: F.pad(p["x"], (2, 1, 0, 1, 1, 0)), {"x": (1, 2, 2, 3, 1)})
state = {"n.running_mean": torch.zeros(3), "n.running_var": torch.ones(3)}
case("batch norm of a volume", lambda p: F.relu(F.batch_norm(p["x"], p["n.running_mean"], p["n.running_var"], p["n.weight"], p["n.bias"], True, 0.1, 1e-5)), {"x": (2, 3, 2, 3, 2), "n.weight": (3,), "n.bias": (3,)}, states=state)
case("concat of volumes", lambda p: torch.cat([torch.tanh(p["x"]), p["x"]], 1), {"x": (2, 2, 2, 3, 2)})
case("leaky relu", lambda p: F.leaky_relu(p["x"], 0.2), {"x": (2, 2, 3, 3)})
case("tanh", lambda p: torch.tanh(p["x"]), {"x": (2, 3)})


def l1(weight):
    def build(p):
        y = F.conv3d(p["x"], p["c.weight"])
        loss = F.l1_loss(y, p["t"])
        return loss + weight * F.l1_loss(torch.exp(14 * y[:, 0]), torch.exp(14 * p["t"][:, 0]))
    return build


for name, weight in (("l1", 0), ("l1 of exponentials", 1e-6)):
    case(name, l1(weight), {"x": (2, 2, 2, 1, 3), "c.weight": (2, 2, 1, 1, 1)}, {"t": values(2, 2, 2, 1, 3)})


def dice(weight, dims):
    def build(p):
        q = torch.sigmoid(p["x"])
        d = 1 - (2 * (q * p["t"]).sum(dims) + 1) / (q.sum(dims) + p["t"].sum(dims) + 1)
        return weight * d.mean() + (1 - weight) * F.binary_cross_entropy(q, p["t"])
    return build


case("dice", dice(1, (2, 3)), {"x": (2, 2, 3, 3)}, {"t": (values(2, 2, 3, 3) + 1) / 2})
case("dice and cross-entropy", dice(0.25, (2, 3, 4)), {"x": (2, 1, 2, 3, 2)}, {"t": (values(2, 1, 2, 3, 2) + 1) / 2})


def unet(p):
    skip = F.leaky_relu(k4(p, "d1")(p["x"]), 0.01)
    h = F.leaky_relu(k4(p, "d2")(skip), 0.01)
    h = F.relu(k4(p, "u2", True)(h))
    h = torch.tanh(k4(p, "u1", True)(torch.cat([h, skip], 1)))
    return F.l1_loss(h, p["t"])


case("one level of a 3-D U-Net", unet, {
    "x": (1, 1, 4, 4, 8), "d1.weight": (2, 1, 4, 4, 4), "d1.bias": (2,), "d2.weight": (3, 2, 4, 4, 4), "d2.bias": (3,),
    "u2.weight": (3, 2, 4, 4, 4), "u2.bias": (2,), "u1.weight": (4, 2, 4, 4, 4), "u1.bias": (2,),
}, {"t": values(1, 2, 4, 4, 8)})


def bottleneck(p):
    def norm(x, n):
        return F.batch_norm(x, None, None, p[n + ".weight"], p[n + ".bias"], True)
    h = F.relu(norm(F.conv2d(p["x"], p["c1.weight"]), "n1"))
    h = norm(F.conv2d(h, p["c2.weight"], stride=2, padding=1), "n2")
    h = F.relu(h + norm(F.conv2d(p["x"], p["c3.weight"], stride=2), "n3"))
    return F.cross_entropy(F.linear(h.mean((2, 3)), p["fc.weight"], p["fc.bias"]), p["class"][:, 0].long())


case("bottleneck after activation, to classes", bottleneck, {
    "x": (2, 3, 5, 4), "c1.weight": (2, 3, 1, 1), "n1.weight": (2,), "n1.bias": (2,), "c2.weight": (4, 2, 3, 3),
    "n2.weight": (4,), "n2.bias": (4,), "c3.weight": (4, 3, 1, 1), "n3.weight": (4,), "n3.bias": (4,), "fc.weight": (3, 4), "fc.bias": (3,),
}, {"class": torch.tensor([[2.], [0.]])})



def pixels(weight, dice):
    """The loss of nn.PixelCrossEntropy; pixels of class 255 are ignored."""
    def build(p):
        x, t = p["x"], p["t"][:, 0].long()
        w = None if weight is None else torch.tensor(weight)
        loss = F.cross_entropy(x, t, weight=w, ignore_index=255, reduction="sum") / t.numel()
        counts = (t != 255).unsqueeze(1)
        y = F.one_hot(t * (t != 255), x.shape[1]).movedim(-1, 1) * counts
        q = x.softmax(1) * counts
        over = tuple(range(2, x.dim()))
        d = 1 - (2 * (q * y).sum(over) + 1) / (q.sum(over) + y.sum(over) + 1)
        return dice * d.mean() + (1 - dice) * loss
    return build


def classes(n, *shape):
    """Class indices, and 255 at about a third of the pixels."""
    t = torch.randint(n + n // 2, shape)
    return torch.where(t < n, t, torch.tensor(255)).double()


case("pixel cross-entropy", pixels(None, 0), {"x": (2, 4, 3, 3)}, {"t": classes(4, 2, 1, 3, 3)})
case("pixel cross-entropy, weighted", pixels([0.5, 2, 0, 1], 0), {"x": (2, 4, 3, 3)}, {"t": classes(4, 2, 1, 3, 3)})
case("pixel cross-entropy of 2 classes, and Dice", pixels([1.0, 3.0], 0.25), {"x": (3, 2, 2, 3)}, {"t": classes(2, 3, 1, 2, 3)})
case("pixel cross-entropy of 20 classes of a volume, and Dice", pixels([0.25 * i for i in range(20)], 0.5), {"x": (2, 20, 2, 1, 3)}, {"t": classes(20, 2, 1, 2, 1, 3)})
case("Dice of 4 classes", pixels(None, 1), {"x": (2, 4, 3, 3)}, {"t": classes(4, 2, 1, 3, 3)})

json.dump(cases, sys.stdout, separators=(",", ":"))
print()
