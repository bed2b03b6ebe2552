def read_safetensors(path):
    """Returns the tensors in a safetensors file: a length, a header in JSON, and the values."""
    data = bytearray(pathlib.Path(path).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        values = torch.frombuffer(data, dtype=torch.float32, offset=begin + first, count=(end - first) // 4)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def load(path=pathlib.Path(__file__).with_suffix(".safetensors")):
    """Returns the network with the weights in the file, for evaluation."""
    network = new_network()
    network.load_state_dict(read_safetensors(path))
    return network.eval()


def read_pixels(path):
    """Returns red, green and blue [3, height, width] as 16-bit numbers. Transparent pixels are black."""
    image = Image.open(path)
    if getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"{path} has {image.n_frames} pages: save each as a file")
    if image.mode.startswith("I;16") or image.mode == "I" and image.format == "PNG":
        return torch.from_numpy(np.array(image).astype(np.int64)).expand(3, -1, -1)
    if image.mode in ("I", "F"):
        raise ValueError(f"{path} has 32 bits per pixel: save it with 8 or 16")
    rgba = torch.from_numpy(np.array(image.convert("RGBA")).astype(np.int64)).permute(2, 0, 1)
    return 257 * rgba[:3] * rgba[3] // 255
