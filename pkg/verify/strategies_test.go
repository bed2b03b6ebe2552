package verify

import (
	"strings"
	"testing"

	"lockstep/pkg/train"
)

// TestVerifyStrategies checks, for each exact strategy besides ddp, updates that need norms
// over all workers (besides local_sgd), the CPU engine, and the detection of every fault.
func TestVerifyStrategies(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, text := range []string{"horovod", "mirrored", "multiworker:replicas=2", "zero1", "paramserver", "paramserver:servers=2", "pipeline", "local_sgd:steps=1"} {
		workers := 3
		if text == "multiworker:replicas=2" {
			workers = 4 // two nodes
		}
		c, err := DPOptions{Workers: workers, Strategy: text}.parseStrategy()
		if err != nil {
			t.Fatal(err)
		}
		all := variantsWithStrategy(newCPUVariants(), text, c, workers)
		if want := map[bool]int{false: 14, true: 8}[c.NeedsSGD()]; len(all) != want {
			t.Fatalf("%s: %d variants, want %d: the 14 of ddp, or those of SGD without clipping", text, len(all), want)
		}
		list := []trainingVariant{all[1], all[4]} // the CPU engine; synchronized batch norms
		if !c.NeedsSGD() {
			list = []trainingVariant{all[2], all[6], all[3], all[10]} // the CPU engine; LAMB; clipping; synchronized batch norms
		}
		if text == "pipeline" { // the network with the fewest layers
			list = append(list, all[7])
		}
		base := func(cfg *train.Config) {
			configureFaultTest(cfg)
			cfg.Strategy = c
		}
		checks, err := verifyVariantsAndFaults(t.Context(), workers, list, base, train.WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range checks {
			t.Log(k)
			if !k.OK {
				t.Error(k)
			}
		}
	}
}

// TestStrategiesThatCannotBeVerified: a strategy that is not exact, or unknown, is refused.
func TestStrategiesThatCannotBeVerified(t *testing.T) {
	for text, want := range map[string]string{
		"local_sgd:steps=2":         "strategy local_sgd steps=2 does not claim that N workers equal one with an N-fold batch: use one of ddp, ",
		"ddp:no_communication=true": "strategy ddp no_communication=true does not claim",
		"zro1":                      `unknown strategy "zro1" (did you mean zero1?)`,
		"zero1:steps=2":             "strategy.steps does not apply to strategy zero1",
		"zero1:steps":               `strategy "zero1:steps": got option "steps", want option=value`,
		"paramserver:servers=3":     "got 3 servers for 2 workers",
		"multiworker:replicas=3":    "2 workers cannot be divided among processes with 3 replicas each: use a multiple of 3",
		"pipeline":                  "strategy pipeline: got 5 stages, but one of the networks that are compared has only 4 layers",
		"pipeline:schedule=dapple":  `strategy.schedule is "dapple": use 1f1b or gpipe`,
	} {
		workers := 2
		if text == "pipeline" {
			workers = 5
		}
		if _, err := DataParallelism(t.Context(), DPOptions{Workers: workers, Strategy: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"zero1", "horovod"} {
		if _, err := DataParallelism(t.Context(), DPOptions{Workers: 2, Strategy: text, Device: "cuda"}); err == nil || !strings.Contains(err.Error(), "has not been tested on a GPU yet") {
			t.Errorf("%s on a GPU: %v", text, err)
		}
	}
}
