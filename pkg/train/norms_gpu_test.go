package train

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/pkg/internal/gputest"
)

// TestSyncBatchNormOnGPU trains two workers with synchronized batch norms, on one GPU each and
// on a shared GPU. Both have the same bits, including the running statistics, and equal the
// CPU engine's up to rounding. The steps record the time of exchanges on the host.
func TestSyncBatchNormOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	cfg := onGPU(tiny())
	cfg.SyncBatchNorm, cfg.BucketMiB, cfg.Accumulate = true, 0.01, 2
	cfg.Engine.TF32, cfg.Engine.Precision = false, "fp32"
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprint(devices, " GPUs"), func(t *testing.T) {
			ranks := steppedOn(t, cfg, 2, 3, WorkerOptions{Open: gputest.NewPerWorkerOpener(t, devices)})
			for name, v := range ranks[0] {
				for i := range v {
					if ranks[1][name][i] != v[i] {
						t.Fatalf("%s of rank 1 is not rank 0's", name)
					}
				}
			}
			cpu := cfg
			cpu.Engine.Device, cpu.Engine.Convolution = "cpu", "auto"
			for name, v := range steppedOn(t, cpu, 2, 3, WorkerOptions{})[0] {
				if strings.Contains(name, "running") && !(distance(v, ranks[0][name]) < 1e-3) {
					t.Errorf("%s is off by %v of the CPU's", name, distance(v, ranks[0][name]))
				}
			}
		})
	}
}
