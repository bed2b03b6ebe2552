package volume

import (
	"bufio"
	"context"
	"encoding/binary"
	"math"
	"os"

	"lockstep/pkg/data/internal/hdf5"
	"lockstep/pkg/data/internal/npy"
	"lockstep/pkg/data/internal/output"
	"lockstep/pkg/data/internal/window"
	"lockstep/pkg/internal/wholefile"
)

// NamedArray is a data set [C,D,H,W] of an HDF5 file.
type NamedArray struct {
	Name   string
	Shape  []int
	Values []float32
}

// WriteHDF5 writes arrays to an HDF5 file. If chunk is 0, the data are contiguous. Otherwise they are
// in chunks with that edge, each with all channels, and zip says whether the chunks are compressed.
func WriteHDF5(ctx context.Context, path string, chunk int, zip bool, arrays ...NamedArray) error {
	var sets []hdf5.OutputDataset
	for _, a := range arrays {
		s := hdf5.OutputDataset{Name: a.Name, Shape: a.Shape, Values: a.newCopier()}
		if chunk > 0 {
			s.Chunk = []int{s.Shape[0], min(chunk, s.Shape[1]), min(chunk, s.Shape[2]), min(chunk, s.Shape[3])}
			s.Gzip = zip
		}
		sets = append(sets, s)
	}
	return wholefile.Write(path, 0o666, func(f *os.File) error { return hdf5.Write(output.CancelableFile{File: f, Context: ctx}, sets...) })
}

// newCopier returns a function for hdf5.OutputDataset.Values that copies boxes of a.
func (a NamedArray) newCopier() func(dst []float32, start, size []int) error {
	plane := window.ElementCount(a.Shape[1:])
	return func(dst []float32, start, size []int) error {
		w := window.Window{Start: [3]int(start[1:]), Size: [3]int(size[1:])}
		window.Copy(dst, a.Values[start[0]*plane:], append([]int{size[0]}, a.Shape[1:]...), w)
		return nil
	}
}

// WriteNPY writes v, of shape [C,D,H,W], to a .npy file of shape [D,H,W,C].
func WriteNPY(ctx context.Context, path string, v []float32, shape []int) error {
	return WriteArray(ctx, path, v, shape[0], []int{shape[1], shape[2], shape[3], shape[0]})
}

// WriteArray writes v to a .npy file of the given shape. v contains one plane per channel. If there
// are several channels, the last dimension of shape is the channels.
func WriteArray(ctx context.Context, path string, v []float32, channels int, shape []int) error {
	return wholefile.Write(path, 0o666, func(f *os.File) error {
		w := bufio.NewWriterSize(output.CancelableFile{File: f, Context: ctx}, 1<<20)
		if err := npy.WriteHeader(w, shape); err != nil {
			return err
		}
		n := len(v) / channels
		line := make([]byte, 0, 4*channels)
		for k := range n {
			line = line[:0]
			for c := range channels {
				line = binary.LittleEndian.AppendUint32(line, math.Float32bits(v[c*n+k]))
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}
