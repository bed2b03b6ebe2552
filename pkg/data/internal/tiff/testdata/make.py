"""Writes the pictures that the tests read: python3 make.py (needs tifffile, Pillow, NumPy).

Value of page p at (y, x): place k = (p·5 + y)·7 + x; unsigned numbers
k·(2^bits/128) (i32-predictor: k·2^24), signed ones (k - 50)·2^(bits-8), floats k/128.
"""
import numpy as np
import tifffile
from PIL import Image

k = np.arange(3 * 5 * 7).reshape(3, 5, 7)
for bits in (8, 16, 32):
    tifffile.imwrite(f"u{bits}.tif", (k * (1 << bits) // 128).astype(f"u{bits // 8}"), photometric="minisblack")
tifffile.imwrite("i16.tif", ((k - 50) << 8).astype("i2"), photometric="minisblack")
tifffile.imwrite("f32.tif", (k / 128).astype("f4"), photometric="minisblack")
tifffile.imwrite("f64-big.tif", (k / 128).astype(">f8"), photometric="minisblack", byteorder=">")
tifffile.imwrite("f32-deflate.tif", (k / 128).astype("f4"), photometric="minisblack", compression="adobe_deflate")
tifffile.imwrite("f32-tiles.tif", (k / 128).astype("f4"), photometric="minisblack", tile=(16, 16))
tifffile.imwrite("f32-strips.tif", (k / 128).astype("f4"), photometric="minisblack", rowsperstrip=2)

pages = [Image.fromarray((p / 128).astype("f4")) for p in k]
for name in ("tiff_lzw", "packbits"):
    pages[0].save(f"f32-{name}.tif", save_all=True, append_images=pages[1:], compression=name)
pages = [Image.fromarray((p / 128).astype("f4")) for p in k]
pages[0].save("f32-predictor.tif", save_all=True, append_images=pages[1:], compression="tiff_adobe_deflate", tiffinfo={317: 3})
pages = [Image.fromarray((p << 24).astype("i4")) for p in k]
pages[0].save("i32-predictor.tif", save_all=True, append_images=pages[1:], compression="tiff_lzw", tiffinfo={317: 2})

# One page, as a picture of its own.
tifffile.imwrite("one/f32.tif", (k[0] / 128).astype("f4"), photometric="minisblack")
tifffile.imwrite("one/u32.tif", (k[0] << 25).astype("u4"), photometric="minisblack")

# White at 0: the same values inverted. The bits of a fax are k odd, which is white
# where the file says so.
tifffile.imwrite("one/u32-miniswhite.tif", ((1 << 32) - 1 - (k[0] << 25)).astype("u4"), photometric="miniswhite")
for photometric in (0, 1):
    bits = Image.fromarray((k[0] % 2 == 1).astype("u1") * 255).convert("1")
    bits.save(f"one/fax4-{photometric}.tif", compression="group4", tiffinfo={262: photometric})
tifffile.imwrite("one/planar.tif", np.stack([k[0]] * 3).astype("u1"), photometric="rgb", planarconfig="separate")
bits.save("one/fillorder.tif", tiffinfo={266: 2})
