"""The networks that the PyTorch peers train, equal to those of lockstep."""

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


def flops_per_image(model, height, width):
    """FLOPs of one image of height x width forward and backward: those of the convolutions, the
    backward pass at twice the forward, a multiplication and an addition as two."""
    macs = 0

    def count(module, inputs, output):
        nonlocal macs
        taps = module.kernel_size[0] * module.kernel_size[1]
        if isinstance(module, nn.Conv2d):
            macs += output.numel() * taps * module.in_channels
        else:  # each input pixel is spread over the taps
            macs += inputs[0].numel() * taps * module.out_channels

    convolutions = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d))]
    hooks = [m.register_forward_hook(count) for m in convolutions]
    was_training = model.training
    model.eval()  # leaves the running statistics alone
    with torch.no_grad():
        model(torch.zeros(1, 1, height, width))
    model.train(was_training)
    for h in hooks:
        h.remove()
    return 3 * 2 * macs
