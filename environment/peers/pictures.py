#!/usr/bin/env python3
"""The Pillow, h5py and NumPy side of "lockstep bench loader": one process, steered by lines.

    pictures.py

It says what it is in one line of JSON, then answers each line that it reads,
words between tabs, by one line of JSON, and ends with its input:

    {"name": "Pillow 9.4.0, h5py 3.7.0", "threads": 1}
    pictures DIR EDGE     -> {"seconds": 0.4, "loss": 0.5}  all pictures of a folder of folders, EDGE 0: not resized
    cifar FILE EDGE       -> {"seconds": 0.1, "loss": 0.5}  all pictures of a batch of CIFAR-10, resized
    crops DIR EDGE COUNT  -> {"seconds": 0.2, "loss": 0.8}  random cubes of both data of the box in DIR

A sample is read, decoded and made float32 planes [C, ...], of pictures divided
by 255, as torchvision's ToTensor does. "loss" is the mean of the absolute
values of the last one, by which both sides are compared.

Exit code 3: Pillow or h5py is not installed; see environment/peers/install.
"""

import glob
import json
import os
import random
import sys
import time

# One thread; the libraries are told so before they are loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

try:
    import h5py
    import numpy as np
    import PIL
    from PIL import Image
except ImportError as e:
    print(f"{e}: install Pillow and h5py with environment/peers/install", file=sys.stderr)
    sys.exit(3)


def planes(picture, edge):
    picture = picture.convert("RGB")
    if edge:
        picture = picture.resize((edge, edge), Image.BILINEAR)
    v = np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1)).astype(np.float32)
    v /= 255
    return v


def pictures(folder, edge):
    for path in sorted(glob.glob(os.path.join(folder, "*", "*"))):
        with Image.open(path) as picture:
            last = planes(picture, edge)
    return last


def cifar(path, edge):
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, 3073)
    for record in records:
        last = planes(Image.fromarray(np.ascontiguousarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0))), edge)
    return last


def crops(folder, edge, count):
    names = glob.glob(os.path.join(folder, "*.h5"))
    if names:
        file = h5py.File(names[0], "r")
        nbody, hydro = file["Nbody"], file["Hydro"]
        size = nbody.shape[1:]
    else:
        file = None
        nbody = np.load(glob.glob(os.path.join(folder, "*_Nbody.npy"))[0], mmap_mode="r")
        hydro = np.load(glob.glob(os.path.join(folder, "*_Hydro.npy"))[0], mmap_mode="r")
        size = nbody.shape[:3]
    for _ in range(count):
        z, y, x = (slice(p, p + edge) for p in (random.randrange(n - edge + 1) for n in size))
        if file:
            last, _ = nbody[:, z, y, x], hydro[:, z, y, x]
        else:
            last = np.ascontiguousarray(nbody[z, y, x].transpose(3, 0, 1, 2))
            np.ascontiguousarray(hydro[z, y, x].transpose(3, 0, 1, 2))
    if file:
        file.close()
    return last


print(json.dumps({"name": f"Pillow {PIL.__version__}, h5py {h5py.__version__}", "threads": 1}), flush=True)
for line in sys.stdin:
    request, *words = line.rstrip("\n").split("\t")
    start = time.perf_counter()
    if request == "pictures":
        sample = pictures(words[0], int(words[1]))
    elif request == "cifar":
        sample = cifar(words[0], int(words[1]))
    elif request == "crops":
        sample = crops(words[0], int(words[1]), int(words[2]))
    else:
        sys.exit(f"{request} is no request: see the first lines of this file")
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "loss": float(np.abs(sample).mean())}), flush=True)
