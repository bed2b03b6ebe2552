"""Writes the pickles that the tests read: python3 make.py (needs NumPy)."""
import collections
import pickle

import numpy as np

data = np.array([[0, 127, 128], [200, 254, 255]], dtype=np.uint8)
batch = {b"batch_label": "it's one", b"labels": [6, 300], b"data": data}
for protocol in range(6):
    with open(f"batch-p{protocol}.pkl", "wb") as f:
        pickle.dump(batch, f, protocol=protocol)

# As Python 2 wrote it: str are byte strings, and so are the array's bytes.
with open("batch-python2.pkl", "wb") as f:
    f.write(
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04"
        b"K\x00\x85U\x01b\x87Rq\x05(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x06\x00\x00\x00\x00\x7f\x80\xc8\xfe\xfftb"
        b"U\x06labelsq\x08]q\x09(K\x06M\x2c\x01eU\x0bbatch_labelq\x0aU\x08it's oneu."
    )

values = {
    "int": -5, "big": 1 << 40, "float": 0.25, "text": "naïve \u2603", "true": True, "none": None,
    "tuple": (1, 2, 3, 4), "negative": -70000, "number": np.int64(207),
    "fortran": np.asfortranarray(np.array([[1, 2], [3, 4]], dtype=np.float32)),
    "ordered": collections.OrderedDict(a=1), "set": {1, 2}, "bytes": b"\xff\x00",
}
with open("values.pkl", "wb") as f:
    pickle.dump(values, f, protocol=4)
