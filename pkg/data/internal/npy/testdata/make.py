"""Writes the arrays that the tests read: python3 make.py (needs NumPy).

Value at (z, y, x, c): its place in row-major order, modulo 1000.
"""
import numpy as np

v = (np.arange(4 * 5 * 6 * 3) % 1000).reshape(4, 5, 6, 3)
for kind in ("<f4", ">f8", "<f2", "<i2", "|u1"):
    np.save(kind.strip("<>|") + ".npy", (v % 200 if kind == "|u1" else v).astype(kind))
np.save("fortran.npy", np.asfortranarray(v.astype("<f4")[:2]))
np.save("text.npy", np.array(["a", "b"]))
with open("version2.npy", "wb") as f:
    np.lib.format.write_array(f, v.astype("<f4"), version=(2, 0))
