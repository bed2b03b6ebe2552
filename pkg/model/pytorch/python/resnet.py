class Bottleneck(nn.Module):
    """A block of torchvision's ResNet, version 1.5: the stride is in the 3x3 convolution."""

    def __init__(self, inputs, inside, stride, first, momentum):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inside, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside, momentum=momentum)
        self.conv2 = nn.Conv2d(inside, inside, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inside, momentum=momentum)
        self.conv3 = nn.Conv2d(inside, 4 * inside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * inside, momentum=momentum)
        self.downsample = nn.Identity()
        if first:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, 4 * inside, 1, stride=stride, bias=False),
                nn.BatchNorm2d(4 * inside, momentum=momentum),
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """A ResNet (He et al., 2015, arXiv:1512.03385) with the names of torchvision."""

    def __init__(self, inputs, classes, base, blocks, cifar_stem, momentum):
        super().__init__()
        self.cifar_stem = cifar_stem
        if cifar_stem:
            self.conv1 = nn.Conv2d(inputs, base, 3, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(inputs, base, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(base, momentum=momentum)
        channels = base
        self.stages = []
        for stage, count in enumerate(blocks):
            inside = base << stage
            layers = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(channels, inside, stride, block == 0, momentum))
                channels = 4 * inside
            self.stages.append(f"layer{stage + 1}")
            self.add_module(self.stages[-1], nn.Sequential(*layers))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.cifar_stem:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return self.fc(x.mean((2, 3)))
