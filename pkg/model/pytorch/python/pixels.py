def read_pixels(path):
    """Returns red, green and blue [3, height, width] as 16-bit numbers. Transparent pixels are black."""
    image = open_image(path)
    if image.mode.startswith("I"):
        return torch.from_numpy(np.array(image).astype(np.int64)).expand(3, -1, -1)
    rgba = torch.from_numpy(np.array(image.convert("RGBA")).astype(np.int64)).permute(2, 0, 1)
    return 257 * rgba[:3] * rgba[3] // 255
