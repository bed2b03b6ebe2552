#!/usr/bin/env python3
"""Makes the fixtures of TestParity with PyTorch: python3 make.py

Each file holds a small network's weights, one batch, and what PyTorch makes of them in float64: the logits and
loss for training, the gradient of each parameter, the running statistics after the step, and the logits for
evaluation.
The modules are written here from the published descriptions, with the names of torchvision and of keras.applications;
the weights of ResNetV2 are stored as Keras does, under its names and with the output channels last.

Made with PyTorch 1.13 (Debian 12). The values are stored in float32, so that a tensor is right to 6e-8 of its largest.
"""

import json
import pathlib
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent


class Bottleneck(nn.Module):
    """ResNet v1.5: the stride is on the 3x3 convolution."""

    def __init__(self, inputs, inside, stride, first):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inside, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv2 = nn.Conv2d(inside, inside, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inside)
        self.conv3 = nn.Conv2d(inside, 4 * inside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * inside)
        self.downsample = None
        if first:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, 4 * inside, 1, stride, bias=False), nn.BatchNorm2d(4 * inside)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, base, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, base, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        inputs = base
        for stage, count in enumerate(blocks):
            inside = base << stage
            layers = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(inputs, inside, stride, block == 0))
                inputs = 4 * inside
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages = len(blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class ResNetV2(nn.Module):
    """keras.applications: pre-activation, the stride in the last block of a stage, zero padding apart."""

    def __init__(self, blocks, base, classes):
        super().__init__()
        self.blocks = blocks
        self.conv1_conv = nn.Conv2d(3, base, 7, 2)
        inputs = base
        for stage, count in enumerate(blocks):
            inside = base << stage
            for block in range(count):
                name = f"conv{stage + 2}_block{block + 1}"
                stride = 2 if block == count - 1 and stage < len(blocks) - 1 else 1
                setattr(self, name + "_preact_bn", self.norm(inputs))
                if block == 0:
                    setattr(self, name + "_0_conv", nn.Conv2d(inputs, 4 * inside, 1))
                setattr(self, name + "_1_conv", nn.Conv2d(inputs, inside, 1, bias=False))
                setattr(self, name + "_1_bn", self.norm(inside))
                setattr(self, name + "_2_conv", nn.Conv2d(inside, inside, 3, stride, bias=False))
                setattr(self, name + "_2_bn", self.norm(inside))
                setattr(self, name + "_3_conv", nn.Conv2d(inside, 4 * inside, 1))
                inputs = 4 * inside
        self.post_bn = self.norm(inputs)
        self.predictions = nn.Linear(inputs, classes)

    @staticmethod
    def norm(channels):
        return nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.01)  # Keras: momentum 0.99 of what was

    def forward(self, x):
        x = self.conv1_conv(F.pad(x, (3, 3, 3, 3)))
        x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                layer = lambda part: getattr(self, f"conv{stage + 2}_block{block + 1}_{part}")  # noqa: E731
                active = F.relu(layer("preact_bn")(x))
                if block == 0:
                    shortcut = layer("0_conv")(active)
                elif block == count - 1 and stage < len(self.blocks) - 1:
                    shortcut = F.max_pool2d(x, 1, 2)
                else:
                    shortcut = x
                y = F.relu(layer("1_bn")(layer("1_conv")(active)))
                y = F.relu(layer("2_bn")(layer("2_conv")(F.pad(y, (1, 1, 1, 1)))))
                x = shortcut + layer("3_conv")(y)
        x = F.relu(self.post_bn(x)).mean((2, 3))
        return self.predictions(x)


class Half(nn.Module):
    """Convolution 3x3, batch norm, ReLU."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Level(nn.Module):
    def __init__(self, inputs, outputs, up=False):
        super().__init__()
        if up:
            self.transpose = nn.ConvTranspose2d(inputs, outputs, 2, 2)
        self.a = Half(inputs, outputs)
        self.b = Half(outputs, outputs)

    def forward(self, x):
        return self.b(self.a(x))


class UNet2D(nn.Module):
    """The study's, with biases and batch norm: max-pool down, transposed convolution up, [up, skip]."""

    def __init__(self, base, depth):
        super().__init__()
        channels = [base << level for level in range(depth + 1)]
        self.down = nn.ModuleList(Level(channels[i - 1] if i else 1, channels[i]) for i in range(depth))
        self.bridge = Level(channels[depth - 1], channels[depth])
        self.up = nn.ModuleList(Level(channels[i + 1], channels[i], up=True) for i in range(depth))
        self.head = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        skips = []
        for level in self.down:
            skips.append(level(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.bridge(x)
        for level in reversed(self.up):
            x = level(torch.cat([level.transpose(x), skips.pop()], 1))
        return self.head(x)


class UNet3D(nn.Module):
    """The SC21 tutorial's: convolutions 4x4x4 of stride 2 down, transposed ones up, [up, skip]."""

    def __init__(self, base, depth, inputs, outputs):
        super().__init__()
        channels = [base << min(level, 3) for level in range(depth)]
        self.down = nn.ModuleList(
            nn.Conv3d(inputs if i == 0 else channels[i - 1], channels[i], 4, 2, 1) for i in range(depth)
        )
        ups = []
        for i in range(depth):
            width = channels[i] if i == depth - 1 else 2 * channels[i]
            ups.append(nn.ConvTranspose3d(width, outputs if i == 0 else channels[i - 1], 4, 2, 1))
        self.up = nn.ModuleList(ups)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = F.leaky_relu(down(x), 0.01)
            skips.append(x)
        for i in reversed(range(1, len(self.up))):
            x = torch.cat([F.relu(self.up[i](x)), skips[i - 1]], 1)
        return torch.tanh(self.up[0](x))


def exponential_l1(weight):
    """Mean absolute difference, and weight times that of e^(14 x) in channel 0."""

    def loss(y, t):
        return F.l1_loss(y, t) + weight * F.l1_loss(torch.exp(14 * y[:, 0]), torch.exp(14 * t[:, 0]))

    return loss


KERAS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def keras_names(tensors, modules):
    """State of PyTorch's modules under Keras' names, kernels with the output channels last."""
    out = {}
    for name, v in tensors.items():
        layer, part = name.rsplit(".", 1)
        if isinstance(modules[layer], nn.BatchNorm2d):
            part = KERAS[part]
        elif part == "weight":
            part = "kernel"
            v = v.permute(2, 3, 1, 0) if v.dim() == 4 else v.T
        out[f"{layer}/{part}:0"] = v.contiguous()
    return out


def write(path, tensors):
    """safetensors, without the package."""
    header, data = {}, b""
    for name, v in tensors.items():
        raw = v.detach().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(v.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(path.name, len(text) + len(data) + 8, "bytes")


def state(net):
    return {k: v.clone() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}


def make(name, net, image, target, loss, weights=lambda tensors, net: tensors):
    net = net.double()
    norms = {name for name, module in net.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)}
    with torch.no_grad():
        for k, v in net.state_dict().items():  # nothing is 0 or 1 by chance, and everything fits float32
            if k.endswith("running_var"):
                v.uniform_(0.5, 1.5)
            elif v.is_floating_point():
                fan = v[0].numel() if v.dim() > 1 else 4
                gamma = k.endswith(".weight") and k.rsplit(".", 1)[0] in norms
                v.normal_(1.0 if gamma else 0.0, fan**-0.5)
            if v.is_floating_point():
                v.copy_(v.float().double())
    image = image.float().double()
    out = {f"weights.{k}": v for k, v in weights(state(net), net).items()}
    net.eval()
    out["eval.logits"] = net(image)
    net.train()
    logits = net(image)
    value = loss(logits, target)
    value.backward()
    out |= {"image": image, "target": target.double().reshape(len(target), -1) if target.dim() == 1 else target}
    out |= {"logits": logits, "loss": value.reshape(1)}
    out |= {f"gradient.{k}": p.grad for k, p in net.named_parameters()}
    out |= {f"after.{k}": v for k, v in state(net).items() if "running" in k}
    write(HERE / f"{name}.safetensors", out)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    make(
        "resnet-2x1",
        ResNet([2, 1], 4, 5),
        torch.rand(3, 3, 33, 38),
        torch.tensor([4, 0, 2]),
        lambda z, t: F.cross_entropy(z, t, label_smoothing=0.1),
    )
    make(
        "resnetv2-2x3",
        ResNetV2([2, 3], 4, 5),
        torch.rand(3, 3, 33, 38),
        torch.tensor([1, 3, 3]),
        F.cross_entropy,
        lambda tensors, net: keras_names(tensors, dict(net.named_modules())),
    )
    make(
        "unet3d-2x3",
        UNet3D(2, 3, 3, 2),
        torch.randn(2, 3, 8, 16, 8),
        (torch.rand(2, 2, 8, 16, 8) - 0.5).float().double(),
        exponential_l1(0.01),
    )
    make(
        "unet2d-3x2",
        UNet2D(3, 2),
        torch.rand(2, 1, 12, 16),
        (torch.rand(2, 1, 12, 16) > 0.6).double(),
        F.binary_cross_entropy_with_logits,
    )


if __name__ == "__main__":
    main()
