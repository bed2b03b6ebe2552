def read_image(path):
    """Returns the gray values of an image as in training, 0 to 1 [height, width]."""
    red, green, blue = rgb = read_pixels(path)
    step = math.ceil(math.sqrt(red.numel() / 10000))  # some 10,000 pixels are checked
    some = rgb[:, ::step, ::step]
    if (some.amax(0) - some.amin(0)).max() > 65535 // 10:
        raise ValueError(f"{path} has colors, but the network was trained on gray images: save it as a gray image")
    gray = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 24  # 8 bits, as Go's color.GrayModel
    return gray.float() / 255


def spans(size, window):
    """Divides size pixels into windows: the start of each, and the first pixel and the end of its kept part."""
    if window >= size:
        return [(0, 0, size)]
    windows, keep = [], 0
    while keep < size:
        start = min(max(0, keep - HALO), size - window)
        end = size if start + window == size else start + window - HALO
        windows.append((start, keep, end))
        keep = end
    return windows


@torch.no_grad()
def predict(network, image, window=1024):
    """Returns the logits of the foreground [height, width] of an image of gray values [height, width].

    An image that is larger than window pixels is predicted in parts. Each exceeds what is kept of it
    by the receptive field, so that the logits are those of the whole image.
    """
    height, width = image.shape
    if min(height, width) < STEP:
        raise ValueError(f"the image has {height}x{width} pixels, but the network needs at least {STEP}x{STEP}")
    x = F.pad(image[None, None], (0, -width % STEP, 0, -height % STEP), mode="reflect")
    x = x.to(next(network.parameters()).device)
    window = max(window // STEP * STEP, 2 * HALO + STEP)
    logits = torch.empty(x.shape[2:])
    for top, y0, y1 in spans(x.shape[2], window):
        for left, x0, x1 in spans(x.shape[3], window):
            part = network(x[:, :, top : top + window, left : left + window])[0, 0]
            logits[y0:y1, x0:x1] = part[y0 - top : y1 - top, x0 - left : x1 - left]
    return logits[:height, :width]


def main():
    parser = argparse.ArgumentParser(description="Writes the mask of each image to a folder.")
    parser.add_argument("images", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of the masks")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    network = load()
    for path in options.images:
        mask = options.out / f"{path.stem}.png"
        if mask.exists() and mask.samefile(path):
            parser.error(f"{mask} would replace an image: choose another folder")
        foreground = predict(network, read_image(path)) > 0
        Image.fromarray(np.where(foreground, FOREGROUND, BACKGROUND).astype(np.uint8)).save(mask)
