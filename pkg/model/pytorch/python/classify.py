def bilinear(size, edge):
    """Returns the weights [edge, size] that scale size pixels to edge pixels."""
    scale = size / edge
    centers = (torch.arange(edge, dtype=torch.float64) + 0.5) * scale - 0.5
    distances = (torch.arange(size) - centers[:, None]).abs()
    weights = (1 - distances / max(scale, 1)).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)


def read_image(path):
    """Returns red, green and blue of an image as in training, 0 to 1 [3, height, width]."""
    rgb = read_pixels(path)
    if RESIZE:
        height, width = rgb.shape[1:]
        rgb = bilinear(height, RESIZE) @ rgb.double() @ bilinear(width, RESIZE).T
    return ((rgb + 0.5).long() >> 8).float() / 255


@torch.no_grad()
def predict(network, image):
    """Returns the logit of each class for an image of colors [3, height, width]."""
    return network(image[None].to(next(network.parameters()).device))[0].cpu()


def main():
    parser = argparse.ArgumentParser(description="Prints the most probable class of each image.")
    parser.add_argument("images", nargs="+")
    network = load()
    for path in parser.parse_args().images:
        probabilities = predict(network, read_image(path)).softmax(0)
        best = int(probabilities.argmax())
        print(f"{path}: {CLASS_NAMES[best]} ({probabilities[best]:.3f})")
