class ResNetV2(nn.Module):
    """A ResNet V2 (He et al., 2016, arXiv:1603.05027) with the names of keras.applications.

    Batch norm and ReLU come before each convolution. The stride of a stage is in its last block.
    """

    def __init__(self, inputs, classes, base, blocks, cifar_stem, momentum):
        super().__init__()

        def norm(channels):
            return nn.BatchNorm2d(channels, eps=1.001e-5, momentum=momentum)

        self.cifar_stem = cifar_stem
        if cifar_stem:
            self.conv1_conv = nn.Conv2d(inputs, base, 3, padding=1)
        else:
            self.conv1_conv = nn.Conv2d(inputs, base, 7, stride=2, padding=3)
        channels = base
        self.blocks = []  # the name and the stride of each
        for stage, count in enumerate(blocks):
            inside = base << stage
            for block in range(count):
                name = f"conv{stage + 2}_block{block + 1}"
                stride = 2 if block == count - 1 and stage < len(blocks) - 1 else 1
                self.blocks.append((name, stride))
                self.add_module(name + "_preact_bn", norm(channels))
                if block == 0:
                    self.add_module(name + "_0_conv", nn.Conv2d(channels, 4 * inside, 1))
                self.add_module(name + "_1_conv", nn.Conv2d(channels, inside, 1, bias=False))
                self.add_module(name + "_1_bn", norm(inside))
                self.add_module(name + "_2_conv", nn.Conv2d(inside, inside, 3, stride=stride, padding=1, bias=False))
                self.add_module(name + "_2_bn", norm(inside))
                self.add_module(name + "_3_conv", nn.Conv2d(inside, 4 * inside, 1))
                channels = 4 * inside
        self.post_bn = norm(channels)
        self.predictions = nn.Linear(channels, classes)

    def block(self, x, name, stride):
        def layer(part):
            return self.get_submodule(f"{name}_{part}")

        y = F.relu(layer("preact_bn")(x))
        if hasattr(self, name + "_0_conv"):
            x = layer("0_conv")(y)
        elif stride > 1:
            x = F.max_pool2d(x, 1, stride=stride)
        y = F.relu(layer("1_bn")(layer("1_conv")(y)))
        y = F.relu(layer("2_bn")(layer("2_conv")(y)))
        return x + layer("3_conv")(y)

    def forward(self, x):
        x = self.conv1_conv(x)
        if not self.cifar_stem:
            x = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, stride=2)  # the padding of zeros counts, as in Keras
        for name, stride in self.blocks:
            x = self.block(x, name, stride)
        return self.predictions(F.relu(self.post_bn(x)).mean((2, 3)))
