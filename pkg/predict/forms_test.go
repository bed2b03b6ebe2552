package predict

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// form is a form of a PNG file (PNG specification, 11.2.1).
type form struct {
	color       uint8 // color type: one of the constants below
	bits        int   // per value: 8 or 16
	tint        int   // of the colors; 0: red, green and blue are equal
	transparent bool
}

const (
	colorGray, colorRGB, colorPalette, colorGrayAlpha, colorRGBA = 0, 2, 3, 4, 6
)

// forms returns forms by name. Colors of "tinted" forms are so pale that the old reading takes
// them for gray.
func forms() map[string]form {
	return map[string]form{
		"gray": {colorGray, 8, 0, false}, "gray16": {colorGray, 16, 0, false},
		"rgb": {colorRGB, 8, 40, false}, "rgb16": {colorRGB, 16, 40, false},
		"equal": {colorRGB, 8, 0, false}, "equal16": {colorRGB, 16, 0, false},
		"palette": {colorPalette, 8, 40, false}, "paletteequal": {colorPalette, 8, 0, false},
		"rgba": {colorRGBA, 8, 40, false}, "rgba16": {colorRGBA, 16, 40, false},
		"grayalpha": {colorGrayAlpha, 8, 0, false}, "grayalpha16": {colorGrayAlpha, 16, 0, false},
		"clear": {colorGrayAlpha, 8, 0, true}, "clear16": {colorRGBA, 16, 40, true},
		"tintedclear": {colorRGBA, 8, 10, true}, "tintedpalette": {colorPalette, 8, 10, true},
	}
}

// encode encodes a file with the brightnesses of m.
func (f form) encode(m *image.Gray) []byte {
	size := m.Bounds().Size()
	var rows bytes.Buffer
	w := zlib.NewWriter(&rows)
	for i, v := range m.Pix {
		if i%size.X == 0 {
			_, _ = w.Write([]byte{0}) // the row has no filter; writes to memory do not fail
		}
		if f.color == colorPalette {
			_, _ = w.Write([]byte{v})
			continue
		}
		channels := map[uint8]int{colorGray: 1, colorRGB: 3, colorGrayAlpha: 2, colorRGBA: 4}[f.color]
		for k := range channels {
			low := uint8(31 * i)
			sample := v/2 + uint8(k*(i%(f.tint+1)))
			if f.tint > 0 {
				low += uint8(k)
			}
			if k%2 == 1 && k == channels-1 {
				if sample, low = 255, 255; f.transparent {
					sample = uint8(i)
				}
			}
			_, _ = w.Write([]byte{sample, low}[:f.bits/8])
		}
	}
	_ = w.Close()
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(size.X)), uint32(size.Y))
	chunks := map[string][]byte{"IHDR": append(header, uint8(f.bits), f.color, 0, 0, 0), "IDAT": rows.Bytes(), "IEND": nil}
	if f.color == colorPalette {
		for i := range 256 {
			chunks["PLTE"] = append(chunks["PLTE"], uint8(i/2), uint8(i/2+f.tint), uint8(i/2))
			if f.transparent {
				chunks["tRNS"] = append(chunks["tRNS"], uint8(255-i/2))
			}
		}
	}
	file := []byte("\x89PNG\r\n\x1a\n")
	for _, kind := range []string{"IHDR", "PLTE", "tRNS", "IDAT", "IEND"} {
		if content, ok := chunks[kind]; ok {
			file = binary.BigEndian.AppendUint32(file, uint32(len(content)))
			file = append(append(file, kind...), content...)
			file = binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(file[len(file)-4-len(content):]))
		}
	}
	return file
}

// writeFile writes a file and its folder.
func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o777)
	if err == nil {
		err = os.WriteFile(path, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onPairs changes a config to one that learns from images of the given form. Masks have the given
// values, from dark to bright pixels.
func onPairs(t *testing.T, name string, values []uint8, change func(*data.Config)) func(*train.Config) {
	t.Helper()
	const n, edge = 12, 16
	dir, all := t.TempDir(), noise(n*edge, edge)
	for i := range n {
		m := image.NewGray(image.Rect(0, 0, edge, edge))
		copy(m.Pix, all.Pix[i*edge*edge:])
		file := strconv.Itoa(i) + ".png"
		writeFile(t, filepath.Join(dir, "image", file), forms()[name].encode(m))
		for p, v := range m.Pix {
			m.Pix[p] = values[int(v)*len(values)/256]
		}
		if err := data.WritePicture(t.Context(), filepath.Join(dir, "label", file), m); err != nil {
			t.Fatal(err)
		}
	}
	return func(c *train.Config) {
		c.Data = data.Config{Kind: data.KindPairs, Path: dir, TestImages: 3}
		c.Epochs = 4
		change(&c.Data)
	}
}
