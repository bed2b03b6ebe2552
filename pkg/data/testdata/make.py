"""Writes cifar-10-batches-py, a tiny set in the form of CIFAR-10's Python version:
python3 make.py (needs NumPy). Value (31·i + k) mod 256 at k of picture i; labels 3i mod 10.
"""
import os
import pickle

import numpy as np

os.makedirs("cifar-10-batches-py", exist_ok=True)
for b in range(2):
    i = np.arange(3 * b, 3 * b + 3)
    data = ((31 * i[:, None] + np.arange(3072)[None, :]) % 256).astype(np.uint8)
    batch = {b"batch_label": b"tiny", b"labels": [int(3 * v % 10) for v in i], b"data": data, b"filenames": [b"x.png"] * 3}
    with open(f"cifar-10-batches-py/data_batch_{b + 1}", "wb") as f:
        pickle.dump(batch, f, protocol=2)
names = "airplane automobile bird cat deer dog frog horse ship truck".split()
with open("cifar-10-batches-py/batches.meta", "wb") as f:
    pickle.dump({b"num_cases_per_batch": 3, b"label_names": [n.encode() for n in names], b"num_vis": 3072}, f, protocol=2)
