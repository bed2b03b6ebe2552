package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/data"
)

// LoaderOptions configures MeasureLoader.
type LoaderOptions struct {
	Pictures int // number of images of each kind
	Edge     int // edge of an image in pixels
	Box      int // edge in voxels of the box that crops are taken from; 0: not measured
	Crop     int // edge of a crop in voxels
	Crops    int // number of crops per repeat
	Workers  int // goroutines of the loader for the comparison of orders; 0: not compared
	Repeats  int
	Peer     PeerOptions
	Output   io.Writer // progress messages; nil: none
}

// Validate returns an error for the first invalid option.
func (o LoaderOptions) Validate() error {
	switch {
	case o.Pictures < 8 || o.Edge < 16 || o.Repeats < 1:
		return fmt.Errorf("bench loader: got %d images of %d pixels per side and %d repeats, want at least 8 images, 16 pixels per side and 1 repeat", o.Pictures, o.Edge, o.Repeats)
	case o.Box != 0 && (o.Crop < 1 || o.Crop > o.Box || o.Crops < 1):
		return fmt.Errorf("bench loader: got %d crops of edge %d of a box of edge %d, want at least 1 crop of at most the box's edge, or --box 0 to skip crops", o.Crops, o.Crop, o.Box)
	case o.Workers < 0:
		return fmt.Errorf("bench loader: got %d workers, want at least 1, or 0 to skip the comparison of orders", o.Workers)
	}
	return nil
}

const picturesScript = "pictures.py"

// MeasureLoader compares the speed of reading, decoding and converting samples to float32 planes
// from 0 to 1. Lockstep is compared with Pillow (images), and with h5py and NumPy (crops),
// alternating, with one thread each. The last samples of both sides must have about the same mean
// absolute value. Then MeasureLoader compares Lockstep's loader in other orders of its stages with
// the default order, in the second epoch.
//
// The data are generated from a seed in the folder for temporary files. If a peer is not installed,
// the error wraps ErrPeerMissing.
func MeasureLoader(ctx context.Context, o LoaderOptions) (records []Record, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockstep-bench-loader-")
	if err != nil {
		return nil, fmt.Errorf("bench loader: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	argv, err := o.Peer.ScriptCommand(ctx, picturesScript, "Pillow and h5py", "PIL", "h5py")
	if err != nil {
		return nil, fmt.Errorf("bench loader: %w", err)
	}
	peer, err := comparison.StartPeer(ctx, comparison.Program{Argv: argv, Workers: 1})
	if err != nil {
		return nil, fmt.Errorf("bench loader: %w", err)
	}
	defer peer.Close()
	b := loaderBench{LoaderOptions: o, dir: dir, peer: peer, record: Record{Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx), Peer: peer.About.Name}}
	for _, measure := range []func(context.Context) ([]Record, error){b.compareImageReading, b.compareCropReading, b.compareStageOrders} {
		r, err := measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("bench loader: %w", err)
		}
		records = append(records, r...)
	}
	return records, nil
}

// loaderBench contains the options of MeasureLoader, the folder of the generated data and the running peer.
type loaderBench struct {
	LoaderOptions
	dir    string
	peer   *comparison.Side
	record Record // fields that all records share
}

// compareSampleReading compares how fast Lockstep and the peer each read n samples. Lockstep reads them
// from ds; request asks the peer.
func (b loaderBench) compareSampleReading(ctx context.Context, name, unit string, ds data.Dataset, n int, request string) (Record, error) {
	var ours, peers []float64
	for range b.Repeats {
		seconds, mean, err := readSamples(ctx, ds, n)
		if err != nil {
			return Record{}, fmt.Errorf("%s: %w", name, err)
		}
		answers, err := b.peer.Ask(request)
		if err != nil {
			return Record{}, fmt.Errorf("%s: %w", name, err)
		}
		// Decoders and filters differ in the last bits, and crops are at other places.
		if a := answers[0]; !(a.Seconds > 0) || !(math.Abs(a.Loss-mean) < 0.01+0.2*math.Abs(mean)) {
			return Record{}, fmt.Errorf("%s: the last sample has a mean absolute value of %.4f in Lockstep and %.4f in %s (measured in %g s), want about the same value and a positive time", name, mean, a.Loss, b.peer.About.Name, a.Seconds)
		}
		ours, peers = append(ours, float64(n)/seconds), append(peers, float64(n)/answers[0].Seconds)
		comparison.Logf(b.Output, "%s: %.1f and %.1f %s", name, ours[len(ours)-1], peers[len(peers)-1], unit)
	}
	r := b.record
	r.Name, r.Unit = name, unit
	return comparison.CompareRates(r, ours, peers), nil
}

// readSamples reads n samples on one thread. mean is the mean absolute value of the last image.
func readSamples(ctx context.Context, ds data.Dataset, n int) (seconds, mean float64, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	image, target := data.NewBuffers(ds)
	start := time.Now()
	for i := range n {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if err := ds.Get(i%ds.Len(), image, target); err != nil {
			return 0, 0, err
		}
	}
	seconds = time.Since(start).Seconds()
	for _, v := range image {
		mean += math.Abs(float64(v)) / float64(len(image))
	}
	return seconds, mean, nil
}

// Edges in pixels to which the courses and the study resize images.
const (
	imageNetEdge = 256
	cifarResized = 128
)

// compareImageReading compares the reading of PNG, JPEG and CIFAR-10 images.
func (b loaderBench) compareImageReading(ctx context.Context) ([]Record, error) {
	shapes, err := data.Shapes(ctx, data.ShapesOptions{Count: b.Pictures, Classes: 2, Edge: b.Edge, Seed: 1})
	if err != nil {
		return nil, err
	}
	small, err := data.Shapes(ctx, data.ShapesOptions{Count: b.Pictures, Seed: 1})
	if err != nil {
		return nil, err
	}
	png, jpeg, cifar := filepath.Join(b.dir, "png"), filepath.Join(b.dir, "jpeg"), filepath.Join(b.dir, "cifar")
	if err := errors.Join(data.WriteFolders(ctx, png, shapes, "png"), data.WriteFolders(ctx, jpeg, shapes, "jpeg"), data.WriteCIFAR10(ctx, cifar, small, small)); err != nil {
		return nil, err
	}
	var records []Record
	add := func(name string, ds *data.Classes, err error, request ...string) error {
		if err != nil {
			return err
		}
		r, err := b.compareSampleReading(ctx, name, "images/s", ds, b.Pictures, strings.Join(request, "\t"))
		records = append(records, r)
		return err
	}
	size := fmt.Sprintf("%d×%d", b.Edge, b.Edge)
	large, toLarge := fmt.Sprint(imageNetEdge), data.ClassOptions{Resize: imageNetEdge}
	pngs, err := data.OpenFolders(ctx, png, data.ClassOptions{})
	if err := add("decode PNG "+size, pngs, err, "pictures", png, "0"); err != nil {
		return nil, err
	}
	jpegs, err := data.OpenFolders(ctx, jpeg, data.ClassOptions{})
	if err := add("decode JPEG "+size, jpegs, err, "pictures", jpeg, "0"); err != nil {
		return nil, err
	}
	resized, err := data.OpenFolders(ctx, jpeg, toLarge)
	if err := add(fmt.Sprintf("decode JPEG %s and resize to %s×%s", size, large, large), resized, err, "pictures", jpeg, large); err != nil {
		return nil, err
	}
	batch, err := data.OpenCIFAR10(ctx, cifar, data.CIFAROptions{ClassOptions: data.ClassOptions{Resize: cifarResized}, Test: true})
	err = add(fmt.Sprintf("CIFAR-10 resized to %d×%d", cifarResized, cifarResized), batch, err, "cifar", filepath.Join(cifar, "cifar-10-batches-bin", "test_batch.bin"), fmt.Sprint(cifarResized))
	return records, err
}

// compareCropReading compares the reading of random crops of a box in each file format.
func (b loaderBench) compareCropReading(ctx context.Context) ([]Record, error) {
	if b.Box == 0 {
		return nil, nil
	}
	fields, err := data.Fields(ctx, data.FieldsOptions{Count: 1, Edge: b.Box, Seed: 1})
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, form := range []struct {
		name   string
		format data.VolumeFormat
	}{
		{"HDF5 in one piece", data.VolumeFormat{}},
		{fmt.Sprintf("HDF5 in chunks of %d³, gzip", max(1, b.Crop/2)), data.VolumeFormat{Chunk: max(1, b.Crop/2), Gzip: true}},
		{"npy", data.VolumeFormat{NPY: true}},
	} {
		dir := filepath.Join(b.dir, "box", fmt.Sprint(len(records)))
		if err := data.WriteVolumes(ctx, dir, fields, form.format); err != nil {
			return nil, err
		}
		v, err := data.OpenVolumes(ctx, dir, data.VolumeOptions{})
		if err != nil {
			return nil, err
		}
		crops, err := data.Crops(v, b.Crop, b.Crops, 1)
		if err == nil {
			var r Record
			r, err = b.compareSampleReading(ctx, fmt.Sprintf("crop %d³ of %d³, %s", b.Crop, b.Box, form.name), "crops/s", crops, b.Crops, strings.Join([]string{"crops", dir, fmt.Sprint(b.Crop), fmt.Sprint(b.Crops)}, "\t"))
			records = append(records, r)
		}
		if err = errors.Join(err, v.Close()); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// compareStageOrders compares orders of the loader's stages with the default, on JPEG images with random flips.
func (b loaderBench) compareStageOrders(ctx context.Context) ([]Record, error) {
	if b.Workers == 0 {
		return nil, nil
	}
	jpegs, err := data.OpenFolders(ctx, filepath.Join(b.dir, "jpeg"), data.ClassOptions{Resize: imageNetEdge})
	if err != nil {
		return nil, err
	}
	var records []Record
	for _, order := range []string{
		"shuffle shard map batch prefetch", "shuffle shard batch map",
		"cache shuffle shard batch map prefetch", "shuffle shard map cache batch prefetch", "shard map batch cache shuffle prefetch",
	} {
		var ours, peers []float64
		for range b.Repeats {
			v, err := b.measureSecondEpoch(ctx, jpegs, strings.Fields(order))
			if err != nil {
				return nil, err
			}
			p, err := b.measureSecondEpoch(ctx, jpegs, nil)
			if err != nil {
				return nil, err
			}
			ours, peers = append(ours, v), append(peers, p)
			comparison.Logf(b.Output, "order %s: %.1f, default %.1f images/s", order, v, p)
		}
		r := b.record
		r.Name, r.Unit, r.Peer = "loader order "+order, "images/s", "order "+strings.Join(data.DefaultOrder(), " ")
		records = append(records, comparison.CompareRates(r, ours, peers))
	}
	return records, nil
}

func (b loaderBench) measureSecondEpoch(ctx context.Context, ds data.Dataset, order []string) (float64, error) {
	const batch = 8
	s, err := data.NewSampler(data.SamplerOptions{Samples: ds.Len(), World: 1, BatchPerWorker: batch, Shuffle: true, Seed: 1})
	if err != nil {
		return 0, err
	}
	l, err := data.NewLoader(ds, s, data.LoaderOptions{Workers: b.Workers, Prefetch: 2, Order: order, Augment: data.Augment{Flip: true}, Seed: 1})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var start time.Time
	for epoch := range 2 {
		start = time.Now()
		it := l.Epoch(ctx, epoch)
		for it.Next() {
		}
		if err := it.Err(); err != nil {
			return 0, err
		}
	}
	return float64(l.Steps()*batch) / time.Since(start).Seconds(), nil
}
