"""All networks that the GPU peer trains, equal to those of lockstep, with their losses."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_models import UNet


def conv(inputs, outputs, kernel, stride, bias):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=bias)


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1.001e-5, momentum=0.01)  # Keras' constants


class Bottleneck(nn.Module):
    """A block of keras.applications' ResNetV2: batch norm and ReLU before its convolutions."""

    def __init__(self, inputs, inside, stride, first):
        super().__init__()
        self.stride, self.first = stride, first
        self.norm0 = norm(inputs)
        self.project = conv(inputs, 4 * inside, 1, 1, True) if first else None
        self.conv1, self.norm1 = conv(inputs, inside, 1, 1, False), norm(inside)
        self.conv2, self.norm2 = conv(inside, inside, 3, stride, False), norm(inside)
        self.conv3 = conv(inside, 4 * inside, 1, 1, True)

    def forward(self, x):
        y = F.relu(self.norm0(x), inplace=True)
        if self.first:
            x = self.project(y)
        elif self.stride > 1:
            x = F.max_pool2d(x, 1, self.stride)
        y = F.relu(self.norm1(self.conv1(y)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return x + self.conv3(y)


class ResNetV2(nn.Module):
    """keras.applications' ResNetV2 of those blocks: the last block of a stage has the stride."""

    def __init__(self, blocks, classes):
        super().__init__()
        self.stem = conv(3, 64, 7, 2, True)
        layers, inputs = [], 64
        for stage, count in enumerate(blocks):
            inside = 64 << stage
            for block in range(count):
                stride = 2 if block == count - 1 and stage < len(blocks) - 1 else 1
                layers.append(Bottleneck(inputs, inside, stride, block == 0))
                inputs = 4 * inside
        self.blocks = nn.Sequential(*layers)
        self.norm = norm(inputs)
        self.classes = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.max_pool2d(F.pad(self.stem(x), (1, 1, 1, 1)), 3, 2)  # zeros that take part, as in Keras
        x = F.relu(self.norm(self.blocks(x)), inplace=True)
        return self.classes(x.mean((2, 3)))


class UNet3D(nn.Module):
    """The SC21 tutorial's 3-D U-Net: strided convolutions down, transposed ones up, tanh at its end."""

    def __init__(self, inputs, outputs, base, depth):
        super().__init__()
        channels = [base << min(level, 3) for level in range(depth)]
        self.down = nn.ModuleList(nn.Conv3d(a, b, 4, stride=2, padding=1) for a, b in zip([inputs] + channels, channels))
        self.up = nn.ModuleList()
        for i in range(depth - 1, -1, -1):
            above = channels[i] if i == depth - 1 else 2 * channels[i]
            self.up.append(nn.ConvTranspose3d(above, channels[i - 1] if i > 0 else outputs, 4, stride=2, padding=1))

    def forward(self, x):
        skips = []
        for down in self.down:
            x = F.leaky_relu(down(x), 0.01)
            skips.append(x)
        skips.pop()
        for up in self.up[:-1]:
            x = torch.cat([F.relu(up(x)), skips.pop()], 1)
        return torch.tanh(self.up[-1](x))


class Network:
    """A model with the shape of an image and what it is trained on."""

    def __init__(self, model, image, loss, draw_targets):
        self.model, self.image, self.loss, self.draw_targets = model, image, loss, draw_targets

    def flops_per_image(self):
        """FLOPs of one image forward and backward: those of the convolutions and linear layers, the
        backward pass at twice the forward, a multiplication and an addition as two."""
        macs = 0

        def count(module, inputs, output):
            nonlocal macs
            if isinstance(module, nn.Linear):
                macs += output.numel() * module.in_features
                return
            taps = 1
            for k in module.kernel_size:
                taps *= k
            if isinstance(module, (nn.ConvTranspose2d, nn.ConvTranspose3d)):  # each input is spread over the taps
                macs += inputs[0].numel() * taps * module.out_channels
            else:
                macs += output.numel() * taps * module.in_channels

        counted = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
        hooks = [m.register_forward_hook(count) for m in self.model.modules() if isinstance(m, counted)]
        was_training = self.model.training
        self.model.eval()  # leaves the running statistics alone
        with torch.no_grad():
            self.model(torch.zeros(1, *self.image))
        self.model.train(was_training)
        for h in hooks:
            h.remove()
        return 3 * 2 * macs


def build(name, args):
    """The network of that name; unet2d has the sizes of args."""
    if name == "unet2d":
        image = (1, args.height, args.width)
        masks = lambda batch, device: (torch.rand((batch, *image), device=device) > 0.5).float()
        return Network(UNet(args.base, args.depth, args.bias), image, F.binary_cross_entropy_with_logits, masks)
    if name == "unet3d-sc21":
        fields = lambda batch, device: 2 * torch.rand((batch, 5, 64, 64, 64), device=device) - 1
        return Network(UNet3D(4, 5, 64, 6), (4, 64, 64, 64), F.l1_loss, fields)
    blocks = {"resnet50v2": (3, 4, 6, 3), "resnet152v2": (3, 8, 36, 3)}[name]
    classes = lambda batch, device: torch.randint(10, (batch,), device=device)
    return Network(ResNetV2(blocks, 10), (3, 128, 128), F.cross_entropy, classes)
