package data_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"lockstep/pkg/data"
)

// TestAugmentKeepsPairs: image and mask are changed alike, all eight symmetries
// of the square come, values are only moved, and epochs differ.
func TestAugmentKeepsPairs(t *testing.T) {
	ds := numbered{n: 200, channels: 1, height: 3, width: 3, bad: -1}
	l := loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 200}, data.LoaderOptions{Augment: data.Augment{Flip: true, Rotate: true}, Seed: 1})
	defer l.Close()
	symmetries := map[string]int{}
	first := read(t, l, 0)[0]
	for i := range ds.n {
		image, target := first.Image[i*9:][:9], first.Target[i*9:][:9]
		if !slices.Equal(image, target) {
			t.Fatalf("sample %d: image and mask are changed differently", i)
		}
		local := make([]int, 9)
		for k, v := range image {
			local[k] = int(v) - i*1000
		}
		symmetries[fmt.Sprint(local)]++
	}
	// The eight symmetries of the square, written out.
	for _, want := range [][]int{
		{0, 1, 2, 3, 4, 5, 6, 7, 8},
		{6, 3, 0, 7, 4, 1, 8, 5, 2},
		{8, 7, 6, 5, 4, 3, 2, 1, 0},
		{2, 5, 8, 1, 4, 7, 0, 3, 6},
		{2, 1, 0, 5, 4, 3, 8, 7, 6},
		{6, 7, 8, 3, 4, 5, 0, 1, 2},
		{0, 3, 6, 1, 4, 7, 2, 5, 8},
		{8, 5, 2, 7, 4, 1, 6, 3, 0},
	} {
		// 200 draws of 8: 25 expected, 9 is more than 3 deviations (4.7) below.
		if n := symmetries[fmt.Sprint(want)]; n < 9 {
			t.Errorf("symmetry %v came %d times of 200", want, n)
		}
		delete(symmetries, fmt.Sprint(want))
	}
	if len(symmetries) > 0 {
		t.Errorf("these are no symmetries: %v", symmetries)
	}
	turns := map[string]int{}
	l = loader(t, ds, data.SamplerOptions{World: 1, BatchPerWorker: 200}, data.LoaderOptions{Augment: data.Augment{Rotate: true}, Seed: 1})
	defer l.Close()
	turned := read(t, l, 0)[0]
	for i := range ds.n {
		local := make([]int, 9)
		for k, v := range turned.Image[i*9:][:9] {
			local[k] = int(v) - i*1000
		}
		turns[fmt.Sprint(local)]++
	}
	// The first four of those above: without flips nothing is mirrored.
	for _, want := range []string{"[0 1 2 3 4 5 6 7 8]", "[6 3 0 7 4 1 8 5 2]", "[8 7 6 5 4 3 2 1 0]", "[2 5 8 1 4 7 0 3 6]"} {
		if n := turns[want]; n < 30 { // 50 expected, deviation 6
			t.Errorf("rotation %s came %d times of 200", want, n)
		}
		delete(turns, want)
	}
	if len(turns) > 0 {
		t.Errorf("these are no rotations: %v", turns)
	}
	if second := read(t, l, 1)[0]; slices.Equal(turned.Image, second.Image) {
		t.Error("two epochs are augmented alike")
	}
}

// TestAugmentShapes: samples that are not square are turned by 180° at most,
// crops are parts of their sample, and every place is reached.
func TestAugmentShapes(t *testing.T) {
	ds := numbered{n: 100, channels: 2, height: 2, width: 3, bad: -1}
	s := data.SamplerOptions{World: 1, BatchPerWorker: 100}
	l := loader(t, ds, s, data.LoaderOptions{Augment: data.Augment{Rotate: true}})
	defer l.Close()
	turned := 0
	b := read(t, l, 0)[0]
	for i := range ds.n {
		image := b.Image[i*12:][:12]
		for k := range image {
			image[k] -= float32(i * 1000)
		}
		switch fmt.Sprint(image) {
		case "[0 1 2 3 4 5 6 7 8 9 10 11]":
		case "[5 4 3 2 1 0 11 10 9 8 7 6]":
			turned++
		default:
			t.Fatalf("sample %d became %v", i, image)
		}
	}
	if turned < 30 || turned > 70 { // 50 expected, deviation 5
		t.Errorf("%d of 100 are turned", turned)
	}

	l = loader(t, ds, s, data.LoaderOptions{Augment: data.Augment{Crop: 2}})
	defer l.Close()
	if !slices.Equal(l.ImageShape(), []int{2, 2, 2}) || !slices.Equal(l.TargetShape(), []int{1, 2, 2}) {
		t.Errorf("crops have shapes %v and %v", l.ImageShape(), l.TargetShape())
	}
	places := map[float32]int{}
	b = read(t, l, 0)[0]
	for i := range ds.n {
		image := b.Image[i*8:][:8]
		x := image[0] - float32(i*1000)
		places[x]++
		for k, v := range []float32{0, 1, 3, 4, 6, 7, 9, 10} { // channel 1 starts at 6
			if image[k] != float32(i*1000)+x+v {
				t.Fatalf("crop of sample %d is %v", i, image)
			}
		}
	}
	if len(places) != 2 || math.Abs(float64(places[0]-places[1])) > 40 {
		t.Errorf("crops start at columns %v", places)
	}
}
