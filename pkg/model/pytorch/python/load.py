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


def open_image(path):
    """Opens an image file of one page. The mode of 16-bit gray images begins with I."""
    image = Image.open(path)
    if getattr(image, "n_frames", 1) > 1:
        raise ValueError(f"{path} has {image.n_frames} pages: save each as a file")
    if image.mode == "F" or image.mode == "I" and image.format != "PNG":
        raise ValueError(f"{path} has signed values, or more than 16 bits per value: save it with 8 or 16 bits")
    return image
