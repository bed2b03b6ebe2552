def read_image(path):
    """Returns the gray values of an image as in training, 0 to 1 [1, height, width]."""
    red, green, blue = rgb = read_pixels(path)
    step = math.ceil(math.sqrt(red.numel() / 10000))  # some 10,000 pixels are checked
    some = rgb[:, ::step, ::step]
    if (some.amax(0) - some.amin(0)).max() > 65535 // 10:
        raise ValueError(f"{path} has colors, but the network was trained on gray images: save it as a gray image")
    gray = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 24  # 8 bits, as Go's color.GrayModel
    return gray[None].float() / 255
