package data

import (
	"cmp"
	"context"
	"fmt"

	"lockstep/pkg/data/internal/volume"
	"lockstep/pkg/data/internal/window"
)

// VolumeOptions selects the input and the target in files of volumes.
type VolumeOptions struct {
	Input          string // data set of an HDF5 file, or the end of an .npy file's name; empty: "Nbody"
	Target         string // like Input; empty: "Hydro"
	InputChannels  int    // required number of channels; 0: any
	TargetChannels int    // required number of channels; 0: any
}

func (o VolumeOptions) withDefaults() VolumeOptions {
	o.Input, o.Target = cmp.Or(o.Input, "Nbody"), cmp.Or(o.Target, "Hydro")
	return o
}

// Volumes is a data set of boxes in files, each with an input [C,D,H,W] and a target [C',D,H,W]. A
// loader that crops the samples reads only the crops.
type Volumes struct{ files *volume.Files }

// OpenVolumes opens an HDF5 file, the HDF5 files of a folder, or the pairs of .npy files of a folder,
// without reading their values. All boxes must have the same shape. HDF5 data may be chunked and compressed
// (gzip, lzf). A crop reads all chunks that it overlaps, so chunks should be about as large as the crops.
func OpenVolumes(ctx context.Context, path string, o VolumeOptions) (*Volumes, error) {
	files, err := volume.Open(ctx, path, volume.Options(o.withDefaults()))
	if err != nil {
		return nil, fmt.Errorf("open volumes: %w", err)
	}
	return &Volumes{files}, nil
}

// Close closes the files. The data set must not be read afterwards.
func (v *Volumes) Close() error { return v.files.Close() }

// Len returns the number of boxes.
func (v *Volumes) Len() int { return len(v.files.Boxes) }

// ImageShape returns the shape [C,D,H,W] of a complete box's input.
func (v *Volumes) ImageShape() []int { return v.files.Image }

// TargetShape returns the shape [C',D,H,W] of a complete box's target.
func (v *Volumes) TargetShape() []int { return v.files.Target }

// SampleName returns the path of box i's file.
func (v *Volumes) SampleName(i int) string { return v.files.Boxes[i].Name }

// Get reads the input and the target of the complete box i.
func (v *Volumes) Get(i int, image, target []float32) error {
	w := window.Full(v.files.Image)
	return v.getWindow(context.Background(), i, w, image, target)
}

func (v *Volumes) getWindow(ctx context.Context, i int, w window.Window, image, target []float32) error {
	if err := checkGetArguments(v, i, w, image, target); err != nil {
		return err
	}
	if err := v.files.Boxes[i].Image.Read(image, w); err != nil {
		return fmt.Errorf("read %s: %w", v.files.Boxes[i].Name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := v.files.Boxes[i].Target.Read(target, w); err != nil {
		return fmt.Errorf("read %s: %w", v.files.Boxes[i].Name, err)
	}
	return nil
}
