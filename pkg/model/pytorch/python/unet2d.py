class Block(nn.Module):
    """A 3x3 convolution, batch norm and ReLU."""

    def __init__(self, inputs, outputs, batch_norm, bias):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias or not batch_norm)
        self.norm = nn.BatchNorm2d(outputs) if batch_norm else nn.Identity()

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Level(nn.Module):
    """Two blocks at one resolution. On the way up, a transposed convolution comes before them."""

    def __init__(self, inputs, outputs, batch_norm, bias, up=False):
        super().__init__()
        if up:
            self.transpose = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.a = Block(inputs, outputs, batch_norm, bias)
        self.b = Block(outputs, outputs, batch_norm, bias)

    def forward(self, x):
        return self.b(self.a(x))


class UNet2D(nn.Module):
    """A U-Net (Ronneberger et al., 2015) whose convolutions keep the size of the image."""

    def __init__(self, inputs, outputs, base, depth, batch_norm, bias):
        super().__init__()
        channels = [base << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            Level(before, after, batch_norm, bias) for before, after in zip([inputs] + channels, channels[:-1])
        )
        self.bridge = Level(channels[-2], channels[-1], batch_norm, bias)
        self.up = nn.ModuleList(
            Level(below, here, batch_norm, bias, up=True) for here, below in zip(channels, channels[1:])
        )
        self.head = nn.Conv2d(base, outputs, 1)

    def forward(self, x):
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bridge(x)
        for level in reversed(self.up):
            x = level(torch.cat([level.transpose(x), skips.pop()], 1))
        return self.head(x)
