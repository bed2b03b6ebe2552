package cpu

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestBits holds each instruction set to the bits that it gave when it was written:
// the parameters after three steps of a small U-Net. A change of the order of
// additions shows here; if it is meant, the new sums belong here, and the change
// belongs in CHANGELOG.md, for runs can no longer be repeated bit for bit. Plain Go
// is not held to it: the compiler may fuse multiplications and additions. NEON is not
// either, since on arm64 the compiler fuses them in the Go code between the kernels;
// TestSetBits of package kernel holds its kernels to the bits of AVX2.
func TestBits(t *testing.T) {
	for set, want := range map[string]string{
		"avx2":   "ac57a75c67fa499b",
		"avx512": "6f8386646acd65b1",
	} {
		t.Run(set, func(t *testing.T) {
			g, p := lowered(t, alignedUNet(), 3, nn.Train, plan.Options{Fuse: true})
			x := loaded(t, openWith(t, set, 2, "auto"), p, g)
			for step := range 3 {
				u := optim.Update{Rule: "adam", LearningRate: 1e-3, Step: step + 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
				if _, err := x.Step(context.Background(), nil, &u); err != nil {
					t.Fatal(err)
				}
			}
			hash := sha256.New()
			for _, name := range x.Names() {
				v, err := x.Get(name)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range v {
					if err := binary.Write(hash, binary.LittleEndian, math.Float32bits(float32(f))); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := hex.EncodeToString(hash.Sum(nil))[:16]; got != want {
				t.Errorf("the parameters' sum is %s, want %s", got, want)
			}
		})
	}
}
