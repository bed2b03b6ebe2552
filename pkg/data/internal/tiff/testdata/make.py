"""Writes the pictures that the tests read: python3 make.py (needs tifffile, Pillow, NumPy, libtiff-tools).

Value of page p at (y, x): place k = (p·5 + y)·7 + x; unsigned numbers
k·(2^bits/128) (i32-predictor: k·2^24), signed ones (k - 50)·2^(bits-8), floats k/128.
"""
import subprocess

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
bits.save("one/fillorder.tif", tiffinfo={266: 2})

# Pictures of four colors, interleaved by tifffile, and as separate planes by libtiff 4.5.0.
y, x, c = np.mgrid[0:19, 0:20, 0:4]
for bits in (8, 16):
    v = ((y * 1009 + x * 7919 + c * 31337) % (1 << bits)).astype(f"u{bits // 8}")
    tifffile.imwrite(f"planar/rgb{bits}.tif", v[..., :3], photometric="rgb")
    tifffile.imwrite(f"planar/rgba{bits}.tif", v, photometric="rgb", extrasamples=["unassalpha"])
    if bits == 16:  # which tiffcp cannot separate
        planes, common = np.moveaxis(v, -1, 0), {"photometric": "rgb", "planarconfig": "separate"}
        tifffile.imwrite("planar/rgb16-zip.tif", planes[:3].astype(">u2"), byteorder=">", compression="adobe_deflate", predictor=True, rowsperstrip=7, **common)
        tifffile.imwrite("planar/rgba16-none.tif", planes, extrasamples=["unassalpha"], tile=(16, 16), **common)
for name, options in {
    "rgb8-none": "-c none -r 7", "rgb8-lzw": "-c lzw:2 -r 7", "rgb8-packbits": "-c packbits -t -w 16 -l 16", "rgba8-zip": "-c zip:2 -t -w 16 -l 16",
}.items():
    subprocess.run(["tiffcp", "-p", "separate", *options.split(), f"planar/{name.split('-')[0]}.tif", f"planar/{name}.tif"], check=True)

# Files that are refused.
tifffile.imwrite("refused/bigtiff.tif", k[0].astype("u1"), photometric="minisblack", bigtiff=True)
with tifffile.TiffWriter("refused/subifds.tif") as f:
    f.write(np.zeros((32, 32), "u1"), photometric="minisblack", subifds=1)
    f.write(np.zeros((16, 16), "u1"), photometric="minisblack", subfiletype=1)
with tifffile.TiffWriter("refused/pyramid.tif") as f:
    for n in (32, 16, 8):
        f.write(np.zeros((n, n), "u1"), photometric="minisblack", tile=(16, 16))
Image.fromarray(np.zeros((16, 16, 3), "u1")).save("refused/jpeg.tif", compression="jpeg")
