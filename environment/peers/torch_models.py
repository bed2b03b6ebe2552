"""The networks that the PyTorch peers train, equal to those of lockstep."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Blocks(nn.Module):
    """Two times convolution 3x3, batch norm, ReLU."""

    def __init__(self, inputs, outputs, bias):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=bias)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


class UNet(nn.Module):
    """The network of lockstep's model.UNet2D: max-pool down, transposed convolution up, one logit a pixel.

    bias is that of the convolutions before a batch norm; the study's network has it.
    """

    def __init__(self, base, depth, bias=False):
        super().__init__()
        channels = [base << level for level in range(depth)]
        self.down = nn.ModuleList(Blocks(c // 2 if c > base else 1, c, bias) for c in channels)
        self.bridge = Blocks(channels[-1], 2 * channels[-1], bias)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in reversed(channels))
        self.join = nn.ModuleList(Blocks(2 * c, c, bias) for c in reversed(channels))
        self.head = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        skips = []
        for blocks in self.down:
            x = blocks(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bridge(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


class Bottleneck(nn.Module):
    """A pre-activation bottleneck block of keras.applications' ResNet V2."""

    def __init__(self, inputs, inside, stride, first):
        super().__init__()
        outputs = 4 * inside
        norm = lambda channels: nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.01)
        self.preact = norm(inputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if first else None
        self.stride = stride
        self.conv1, self.norm1 = nn.Conv2d(inputs, inside, 1, bias=False), norm(inside)
        self.conv2, self.norm2 = nn.Conv2d(inside, inside, 3, stride=stride, padding=1, bias=False), norm(inside)
        self.conv3 = nn.Conv2d(inside, outputs, 1)

    def forward(self, x):
        y = F.relu(self.preact(x), inplace=True)
        if self.shortcut is not None:
            x = self.shortcut(y)
        elif self.stride > 1:
            x = F.max_pool2d(x, 1, self.stride)
        y = F.relu(self.norm1(self.conv1(y)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return x + self.conv3(y)


class ResNet50V2(nn.Module):
    """The network of lockstep's model.ResNetV2 with Keras' stem: strides in the last block of a stage."""

    def __init__(self, base, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, base, 7, stride=2, padding=3)
        blocks, inputs, counts = [], base, (3, 4, 6, 3)
        for stage, count in enumerate(counts):
            inside = base << stage
            for i in range(count):
                stride = 2 if i == count - 1 and stage < len(counts) - 1 else 1
                blocks.append(Bottleneck(inputs, inside, stride, i == 0))
                inputs = 4 * inside
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inputs, eps=1.001e-5, momentum=0.01)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.pad(self.stem(x), (1, 1, 1, 1)), 3, 2)  # zeros take part in the maximum
        x = F.relu(self.norm(self.blocks(x)), inplace=True)
        return self.head(x.mean((2, 3)))


class UNet3D(nn.Module):
    """The network of lockstep's model.UNet3D: convolutions of 4x4x4 and stride 2 down and up, no normalisation."""

    def __init__(self, base, depth, inputs=4, outputs=5):
        super().__init__()
        channels = [base << min(level, 3) for level in range(depth)]
        self.down = nn.ModuleList(nn.Conv3d(a, b, 4, stride=2, padding=1) for a, b in zip([inputs] + channels, channels))
        up = []
        for level in reversed(range(depth)):
            above = channels[level] if level == depth - 1 else 2 * channels[level]
            up.append(nn.ConvTranspose3d(above, channels[level - 1] if level else outputs, 4, stride=2, padding=1))
        self.up = nn.ModuleList(up)

    def forward(self, x):
        skips = []
        for conv in self.down:
            x = F.leaky_relu(conv(x), 0.01, inplace=True)
            skips.append(x)
        skips.pop()
        for conv in self.up[:-1]:
            x = torch.cat([F.relu(conv(x), inplace=True), skips.pop()], 1)
        return torch.tanh(self.up[-1](x))


class Blocks3D(nn.Module):
    """Two times convolution 3x3x3, batch norm, ReLU."""

    def __init__(self, inputs, inside, outputs):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv3d(inputs, inside, 3, padding=1, bias=False), nn.BatchNorm3d(inside)
        self.conv2, self.norm2 = nn.Conv3d(inside, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


class CicekUNet3D(nn.Module):
    """The network of lockstep's "unet3d-k3", as Cicek et al., 3D U-Net, 2016: 3x3x3 convolutions, max-pool down,
    transposed convolution up, three channels in and three logits a voxel."""

    def __init__(self, base, depth, channels=3):
        super().__init__()
        inside = [base << level for level in range(depth + 1)]
        outputs = [2 * c for c in inside]
        self.down = nn.ModuleList(Blocks3D(a, b, c) for a, b, c in zip([channels] + outputs, inside, outputs[:-1]))
        self.bridge = Blocks3D(outputs[-2], inside[-1], outputs[-1])
        skips = outputs[-2::-1]
        self.up = nn.ModuleList(nn.ConvTranspose3d(2 * c, 2 * c, 2, stride=2) for c in skips)
        self.join = nn.ModuleList(Blocks3D(3 * c, c, c) for c in skips)
        self.head = nn.Conv3d(outputs[0], channels, 1)

    def forward(self, x):
        skips = []
        for blocks in self.down:
            x = blocks(x)
            skips.append(x)
            x = F.max_pool3d(x, 2)
        x = self.bridge(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose2d, nn.ConvTranspose3d)


def flops_per_image(model, *shape):
    """FLOPs of one sample of a shape (a height and a width alone mean one channel) forward and backward:
    those of the convolutions and linear layers, the backward pass at twice the forward, a multiplication
    and an addition as two."""
    if len(shape) == 2:
        shape = (1, *shape)
    macs = 0

    def count(module, inputs, output):
        nonlocal macs
        if isinstance(module, nn.Linear):
            macs += output.numel() * module.in_features
            return
        taps = math.prod(module.kernel_size)
        if isinstance(module, CONVOLUTIONS):
            macs += output.numel() * taps * module.in_channels
        else:  # each input pixel is spread over the taps
            macs += inputs[0].numel() * taps * module.out_channels

    counted = [m for m in model.modules() if isinstance(m, (nn.Linear, *CONVOLUTIONS, *TRANSPOSED))]
    hooks = [m.register_forward_hook(count) for m in counted]
    was_training = model.training
    model.eval()  # leaves the running statistics alone
    with torch.no_grad():
        model(torch.zeros(1, *shape))
    model.train(was_training)
    for h in hooks:
        h.remove()
    return 3 * 2 * macs
