package model_test

import (
	"fmt"
	"slices"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestBucketsOf3DUNet: the gradient buckets that PyTorch's
// DistributedDataParallel makes of the SC21 3-D U-Net, in MiB: parameters in
// reverse order, the first bucket closed at 1 MiB, the others at the cap.
func TestBucketsOf3DUNet(t *testing.T) {
	net, err := model.Named("unet3d-sc21")
	if err != nil {
		t.Fatal(err)
	}
	g := graph(t, net, 1, nn.Train)
	for _, tt := range []struct {
		cap  int
		want []string
	}{
		{25 << 20, []string{"4.16", "80.00", "128.00", "64.00", "64.00", "64.00", "32.00", "10.06"}},
		{100 << 20, []string{"4.16", "208.00", "128.00", "104.00", "2.06"}},
	} {
		p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: tt.cap})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		last := -1
		for _, b := range p.Buckets {
			got = append(got, fmt.Sprintf("%.2f", float64(b.Bytes)/(1<<20)))
			if b.Ready <= last {
				t.Errorf("a bucket is ready at kernel %d, the one before at %d", b.Ready, last)
			}
			last = b.Ready
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("cap %d MiB: buckets %v, want %v", tt.cap>>20, got, tt.want)
		}
	}
}
