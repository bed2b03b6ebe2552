"""Writes the files that the tests read: python3 make.py (needs h5py).

Value of every data set at (c, z, y, x): its place in row-major order, modulo
1000, so that all types hold it exactly.
"""
import h5py
import numpy as np

shape = (3, 7, 8, 9)
v = (np.arange(np.prod(shape)) % 1000).reshape(shape)
chunk = (2, 3, 5, 4)

for libver in ("earliest", "latest"):
    with h5py.File(f"{libver}.h5", "w", libver=libver) as f:
        f.create_dataset("contiguous", data=v.astype("<f4"))
        f.create_dataset("chunked", data=v.astype("<f4"), chunks=chunk)
        f.create_dataset("gzip", data=v.astype("<f8"), chunks=chunk, compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset("lzf", data=v.astype("<i2"), chunks=chunk, compression="lzf", shuffle=True)
        f.create_dataset("whole", data=v.astype(">f4"), chunks=shape, compression="gzip")
        g = f.create_group("types")
        g.create_dataset("f2", data=v.astype("<f2"))
        g.create_dataset("f8", data=v.astype(">f8"))
        g.create_dataset("i4", data=(v - 500).astype(">i4"))
        g.create_dataset("u2", data=v.astype("<u2"), chunks=chunk)
        d = f.create_dataset("sparse", shape=shape, dtype="<f4", chunks=chunk, fillvalue=-1)
        d[:, :3, :5, :4] = v[:, :3, :5, :4]
        f.create_dataset("text", data=np.array([b"a", b"bc"]))

# Chunks enough for two levels of the older B-tree and two pages of a fixed array.
many = np.arange(60 * 60).reshape(60, 60).astype("<f4")
for libver in ("earliest", "latest"):
    with h5py.File(f"many-{libver}.h5", "w", libver=libver) as f:
        f.create_dataset("many", data=many, chunks=(1, 2), compression="gzip" if libver == "latest" else None)
with h5py.File("grows.h5", "w", libver="latest") as f:
    f.create_dataset("grows", data=v.astype("<f4"), chunks=chunk, maxshape=(None, 7, 8, 9))
# What must not be read as if it were plain: values in another file, whole numbers
# that do not fill their bytes, links.
with h5py.File("odd.h5", "w") as f:
    f.create_dataset("target", data=v[0, 0].astype("<f4"))
    f["soft"] = h5py.SoftLink("/target")
    f.create_dataset("outside", shape=(4, 4), dtype="<f4", external=[("odd.bin", 0, 64)])
    twelve = h5py.h5t.STD_I16LE.copy()
    twelve.set_precision(12)
    h5py.h5d.create(f.id, b"twelve", twelve, h5py.h5s.create_simple((4, 4)))
with h5py.File("odd-latest.h5", "w", libver="latest") as f:
    f["soft"] = h5py.SoftLink("/target")
    f["elsewhere"] = h5py.ExternalLink("odd.h5", "/target")

# Addresses that count from behind a block of the user's, and a chunk whose filter
# was left out; pages of a fixed array of which only the last is written.
with h5py.File("userblock.h5", "w", userblock_size=512) as f:
    d = f.create_dataset("masked", shape=(2, 4), dtype="<f4", chunks=(1, 4), compression="gzip")
    d[0] = np.arange(4)
    d.id.write_direct_chunk((1, 0), np.arange(4, 8, dtype="<f4").tobytes(), filter_mask=1)
with h5py.File("pages.h5", "w", libver="latest") as f:
    d = f.create_dataset("pages", shape=(60, 60), dtype="<f4", chunks=(1, 2), compression="gzip", fillvalue=-1)
    d[59] = many[59]
