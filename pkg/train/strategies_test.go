package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// synchronousStrategies returns the strategies whose resumed runs compute the same bits.
func synchronousStrategies() []string {
	return []string{
		"horovod",
		"horovod:cycle_time=5:fusion_threshold=0.001:cache_capacity=2",
		"mirrored",
		"multiworker:replicas=2",
		"zero1",
		"paramserver",
		"paramserver:servers=2",
		"local_sgd:steps=3",
		"local_sgd:steps=3:average_optimizer=true",
		"ddp:broadcast_buffers=true",
		"ddp:no_communication=true",
		"pipeline",
		"pipeline:schedule=gpipe",
		"ddp:gradient_compression=bf16",
	}
}

// parseStrategy returns the strategy that text describes.
func parseStrategy(t *testing.T, text string) strategy.Config {
	t.Helper()
	c, err := strategy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStrategiesResumeBitForBit: a run that is interrupted within and after an epoch has the
// outcome of an uninterrupted run, and further checkpoints change nothing.
func TestStrategiesResumeBitForBit(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, text := range synchronousStrategies() {
		t.Run(text, func(t *testing.T) {
			cfg := tiny()
			cfg.Strategy, cfg.Epochs = parseStrategy(t, text), 2
			if cfg.Strategy.Staged() { // the same number of steps for one replica
				cfg.Accumulate, cfg.Optimizer.ClipNorm = 2, 0.01
			}
			whole := filepath.Join(t.TempDir(), "whole")
			if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: whole}); err != nil {
				t.Fatal(err)
			}
			want := outcome(t, whole)
			cfg.Checkpoint.EverySteps = 1
			half := filepath.Join(t.TempDir(), "half")
			for _, at := range [][2]int{{1, 2}, {1, 5}, {2, 2}} { // 22 samples, 2 × 2 per step: 5 steps, the last of which ends the epoch
				if err := interruptedAt(t, cfg, 2, WorkerOptions{Dir: half, Resume: true}, at[0], at[1]); err == nil || !errors.Is(err, context.Canceled) {
					t.Fatalf("interrupted after step %d of epoch %d: %v", at[1], at[0], err)
				}
			}
			if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: half, Resume: true}); err != nil {
				t.Fatal(err)
			}
			if got := outcome(t, half); got != want {
				t.Errorf("the resumed run differs:\n%.600s\nwant\n%.600s", got, want)
			}
			wantTrainLossVerified(t, half, cfg.Epochs)
		})
	}
}

// wantTrainLossVerified fails the test unless "verify run" recomputes the training loss of the
// given number of epochs from the steps in the run folder dir.
func wantTrainLossVerified(t *testing.T, dir string, epochs int) {
	t.Helper()
	checks, err := VerifyRun(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !strings.HasSuffix(c.Name, ": training loss") {
			continue
		}
		epochs--
		if !c.OK || !strings.HasPrefix(c.Detail, "mean over the samples") {
			t.Error(c)
		}
	}
	if epochs != 0 {
		t.Errorf("the training loss of %d more epochs is verified", -epochs)
	}
}

// TestLocalSGDEqualsDDP: with K = 1 and SGD with momentum, local SGD computes what ddp
// computes.
func TestLocalSGDEqualsDDP(t *testing.T) {
	cfg := exactConfig()
	cfg.Epochs = 1
	ddp := trainAveraging(t, cfg, nil)
	for k, equal := range map[int]bool{1: true, 2: false} {
		cfg.Strategy = strategy.Config{Name: strategy.NameLocalSGD, Steps: k}
		local := trainAveraging(t, cfg, nil)
		if d := furthest(local[0], local[1]); d != 0 {
			t.Errorf("K = %d: the ranks' parameters differ by %g after the epoch", k, d)
		}
		if d := furthest(ddp[0], local[0]); (d <= toleranceFloat64) != equal {
			t.Errorf("K = %d: the parameters differ from those of ddp by %g", k, d)
		}
	}
}

// TestStrategyInRunFolder: run.json and out.log contain the options, the memory that is
// saved, and that a run without communication is not real.
func TestStrategyInRunFolder(t *testing.T) {
	train := func(text string) (runs.Run, string) {
		cfg := tiny()
		cfg.Strategy, cfg.Epochs = parseStrategy(t, text), 1
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(filepath.Join(dir, "out.log"))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := ConfigOf(run.Info); err != nil || c.Strategy.String() != cfg.Strategy.String() && text != "local_sgd" {
			t.Errorf("%s: read back as %v, %v", text, c.Strategy, err)
		}
		return run, string(log)
	}
	run, log := train("zero1")
	// Adam's two slots in fp32. The CPU engine pads parameters.
	b, complete := run.Info.OptimizerBytes, run.Info.CompleteOptimizerBytes
	if len(b) != 2 || b[0]+b[1] != complete || math.Abs(float64(b[0]-b[1])) > 1000 || complete < int64(8*run.Info.Parameters) {
		t.Errorf("zero1: optimizer bytes %v of %d for %d parameters", b, complete, run.Info.Parameters)
	}
	if want := "strategy zero1: the optimizer's state takes at most "; run.Info.Strategy != "zero1" || run.Info.Config["strategy"] != "zero1" || !strings.Contains(log, want) {
		t.Errorf("zero1: strategy %q, %v; want %q in\n%s", run.Info.Strategy, run.Info.Config["strategy"], want, log)
	}
	run, _ = train("local_sgd")
	if got, want := fmt.Sprint(run.Info.Config["strategy"]), "map[average_optimizer:false name:local_sgd steps:8]"; got != want {
		t.Errorf("local_sgd: config %s, want %s with the defaults", got, want)
	}
	run, log = train("ddp:no_communication=true")
	if !strings.Contains(run.Info.Unreal, "did not communicate") || !strings.Contains(log, "losses and scores are not real") {
		t.Errorf("no_communication: run.json %q, out.log\n%s", run.Info.Unreal, log)
	}
	run, log = train("ddp")
	if _, ok := run.Info.Config["strategy"]; ok || run.Info.Unreal != "" || run.Info.OptimizerBytes != nil || strings.Contains(log, "strategy") {
		t.Errorf("ddp is mentioned: %v in run.json, out.log\n%s", run.Info.Config["strategy"], log)
	}
}

// TestHorovodTimeline: the run folder has a timeline with every parameter only if the config
// asks for it; it does not change the result.
func TestHorovodTimeline(t *testing.T) {
	var outcomes []string
	for _, timeline := range []bool{false, true} {
		cfg := tiny()
		cfg.Strategy, cfg.Epochs = strategy.Config{Name: strategy.NameHorovod, Timeline: timeline}, 1
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, outcome(t, dir))
		text, err := os.ReadFile(filepath.Join(dir, "trace-horovod.json"))
		if !timeline {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a timeline that was not asked for: error %v", err)
			}
			continue
		}
		if err != nil || !json.Valid(text) {
			t.Fatalf("error %v, timeline\n%.500s", err, text)
		}
		for _, parameter := range []string{"head.bias", "up.0.transpose.weight", "up.1.b.norm.weight"} {
			if want := fmt.Sprintf(`"args":{"name":%q}`, parameter); !strings.Contains(string(text), want) {
				t.Errorf("no %s in the timeline", want)
			}
		}
	}
	if outcomes[0] != outcomes[1] {
		t.Error("the timeline has changed the result of the run")
	}
}

// TestStrategyOptionsOfResumedRun: other options are refused, whether they were given or are
// defaults.
func TestStrategyOptionsOfResumedRun(t *testing.T) {
	cfg := tiny()
	cfg.Strategy, cfg.Epochs = parseStrategy(t, "local_sgd"), 1
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	for text, want := range map[string]string{
		"local_sgd:steps=4": "with strategy.steps 8, not 4", "zero1": "with strategy local_sgd, not zero1", "ddp": "with strategy local_sgd, not ddp",
		"local_sgd:average_optimizer=true": "with strategy.average_optimizer false, not true",
	} {
		cfg.Strategy = parseStrategy(t, text)
		_, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true})
		wantError(t, err, "resume "+dir, want)
	}
	cfg.Strategy = parseStrategy(t, "local_sgd:steps=8")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err != nil {
		t.Error(err)
	}
}

// TestStrategyErrors: each invalid use of a strategy is an error that says what to do.
func TestStrategyErrors(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"strategy=zero"}, `unknown strategy "zero" (did you mean zero1?): use one of ddp, horovod, mirrored, multiworker, local_sgd, zero1, paramserver, async_peer, pipeline`},
		{[]string{"strategy={name: local_sgd, stps: 4}"}, `unknown key "strategy.stps" (did you mean steps?)`},
		{[]string{"strategy=zero1", "strategy.steps=4"}, "strategy.steps does not apply to strategy zero1: leave it out (this strategy has no options)"},
		{[]string{"strategy=local_sgd", "strategy.steps=-1"}, "strategy.steps is -1: use the number of steps"},
		{[]string{"strategy=local_sgd", "strategy.steps=many"}, `strategy.steps is "many": expected a whole number`},
		{[]string{"strategy=paramserver", "strategy.servers=-1"}, "strategy.servers is -1: use the number of parameter servers"},
		{[]string{"strategy=paramserver", "strategy.max_staleness=-1"}, "strategy.max_staleness is -1: use the largest number of updates by which a gradient may be late"},
		{[]string{"strategy={name: paramserver, max_staleness: 1}", "ema.decay=0.9"}, "ema.decay is 0.9, but with strategy paramserver max_staleness=1 the workers' parameters differ"},
		{[]string{"strategy={name: paramserver, max_staleness: 1}", "checkpoint.every_steps=3"}, "checkpoint.every_steps is 3, but with strategy paramserver max_staleness=1 the workers are in different steps"},
		{[]string{"strategy={name: paramserver, max_staleness: 1}", "engine.device=cuda"}, "strategy paramserver max_staleness=1 on device cuda: the strategy has not been tested on a GPU yet"},
		{[]string{"strategy={name: paramserver, servers: 2, max_staleness: 1}", "optimizer.clip_norm=1"}, "optimizer adam with clip_norm 1 needs norms over all servers, but with strategy paramserver servers=2 max_staleness=1 each server updates at other times: use strategy.servers=1"},
		{[]string{"strategy={name: paramserver, servers: 2, max_staleness: 1}", "optimizer.name=lamb"}, "optimizer lamb with clip_norm 0 needs norms over all servers"},
		{[]string{"strategy={name: paramserver, servers: 2, max_staleness: 1}", "optimizer.name=lars"}, "optimizer lars with clip_norm 0 needs norms over all servers"},
		{[]string{"strategy=multiworker", "strategy.replicas=-1"}, "strategy.replicas is -1: use the number of replicas in each process"},
		{[]string{"strategy=mirrored", "strategy.replicas=2"}, "strategy.replicas does not apply to strategy mirrored: leave it out"},
		{[]string{"strategy=mirrored", "engine.device=cuda"}, "strategy mirrored on device cuda: the strategy has not been tested on a GPU yet"},
		{[]string{"strategy=multiworker", "engine.device=cuda:1"}, "strategy multiworker on device cuda:1: the strategy has not been tested on a GPU yet"},
		{[]string{"strategy={no_communication: true, broadcast_buffers: true}"}, "are both true: leave one of them out"},
		{[]string{"strategy=[ddp]"}, "strategy needs keys and values, not a list"},
		{[]string{"strategy=local_sgd", "ema.decay=0.9"}, "ema.decay is 0.9, but with strategy local_sgd the workers' parameters differ"},
		{[]string{"strategy=zero1", "engine.device=cuda"}, "strategy zero1 on device cuda: the strategy has not been tested on a GPU yet"},
		{[]string{"strategy=horovod", "engine.device=cuda"}, "strategy horovod on device cuda: the strategy has not been tested on a GPU yet"},
		{[]string{"strategy=horovod", "strategy.cycle_time=-1"}, "strategy.cycle_time is -1: use milliseconds"},
		{[]string{"strategy=zero1", "engine.device=reference", "engine.precision=fp16"}, "strategy zero1 with precision fp16: only strategy ddp without options supports loss scaling"},
		{[]string{"strategy=pipeline", "engine.device=cuda"}, "strategy pipeline on device cuda: the strategy has not been tested on a GPU yet"},
		{[]string{"strategy=pipeline", "engine.precision=bf16"}, "strategy pipeline with precision bf16: stages exchange activations in fp32 or fp64 only"},
		{[]string{"strategy={name: pipeline, schedule: dapple}"}, `strategy.schedule is "dapple": use 1f1b or gpipe`},
		{[]string{"strategy=pipeline", "sync_batchnorm=true"}, "sync_batchnorm is true, but with strategy pipeline there is only one replica"},
		{[]string{"strategy=pipeline", "recompute=true"}, "recompute is true, but strategy pipeline keeps the activations"},
		{[]string{"strategy=pipeline", "ema.decay=0.9"}, "ema.decay is 0.9, but with strategy pipeline the workers' parameters differ"},
		{[]string{"strategy.no_communication=true", "engine.device=cuda:1"}, "strategy ddp no_communication=true on device cuda:1: the strategy has not been tested on a GPU yet"},
	} {
		_, err := tiny().With(c.set...)
		wantError(t, err, c.want)
	}
	// The order of the settings does not matter.
	c, err := tiny().With("strategy.steps=4", "strategy=local_sgd")
	if err != nil || c.Strategy != (strategy.Config{Name: "local_sgd", Steps: 4}) {
		t.Errorf("got %+v, %v", c.Strategy, err)
	}
	cfg := tiny()
	cfg.Strategy = parseStrategy(t, "paramserver:servers=2")
	_, err = trainAll(t, cfg, 1, WorkerOptions{})
	wantError(t, err, "strategy paramserver: got 2 servers for 1 worker")
	w := Worker{Config: "unet2d-cells", Set: []string{"strategy={name: paramserver, servers: 3}"}}
	wantError(t, w.Check(t.Context(), 2, &strings.Builder{}), "got 3 servers for 2 workers")
	w.Set = []string{"strategy={name: multiworker, replicas: 2}"}
	wantError(t, w.Check(t.Context(), 3, &strings.Builder{}), "strategy multiworker: 3 workers cannot be divided among processes with 2 replicas each: use a multiple of 2")
	// The U-Net of depth 2 has 13 convolutions. A launcher refuses more stages, and so does each rank.
	const want = "got 14 stages for a network of 13 layers (convolutions and linear layers): use at most 13 workers"
	cfg.Strategy = parseStrategy(t, "pipeline")
	_, err = trainAll(t, cfg, 14, WorkerOptions{})
	wantError(t, err, want)
	w = Worker{Config: "unet2d-cells", Set: []string{"strategy=pipeline", "model.depth=2"}}
	wantError(t, w.Check(t.Context(), 14, &strings.Builder{}), want)
	if err := w.Check(t.Context(), 13, &strings.Builder{}); err != nil {
		t.Error(err)
	}
}

// TestRanksNeedOneSetOfOptions: ranks with other options end with the same error.
func TestRanksNeedOneSetOfOptions(t *testing.T) {
	errs := make([]error, 2)
	done := make(chan bool)
	for rank, g := range collective.InProcess(2) {
		go func() {
			tr := &Trainer{cfg: tiny(), group: g}
			tr.cfg.Strategy = strategy.Config{Name: "local_sgd", Steps: []int{0, 4}[rank]}
			errs[rank] = tr.checkSameConfig(t.Context())
			done <- true
		}()
	}
	<-done
	<-done
	for _, err := range errs {
		wantError(t, err, "strategy.steps is 4 there and 8 on rank 0")
	}
}

// TestStrategiesNameADeadRank: the error of the other ranks names the rank that is gone, and
// all goroutines end.
func TestStrategiesNameADeadRank(t *testing.T) {
	for _, text := range []string{"ddp", "horovod", "mirrored", "zero1", "paramserver", "local_sgd:steps=1", "pipeline"} {
		cfg := tiny()
		cfg.Strategy = parseStrategy(t, text)
		groups := collective.InProcess(2)
		errs := make([]error, 2)
		done := make(chan bool)
		for rank, g := range groups {
			go func() {
				options := WorkerOptions{Strategy: func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, g collective.Group) (strategy.Strategy, error) {
					s, err := strategy.New(ctx, c, gpu, g)
					return &dyingStrategy{Strategy: s, group: g}, err
				}}
				var res Result
				errs[rank] = trainOne(t.Context(), cfg, g, options, &res)
				done <- true
			}()
		}
		<-done
		<-done
		wantError(t, errs[0], "epoch 1: batch 3:", "rank 1 has left")
	}
}

// dyingStrategy is a strategy whose rank 1 leaves the group in the third step.
type dyingStrategy struct {
	strategy.Strategy
	group collective.Group
	steps int
}

func (d *dyingStrategy) Step(ctx context.Context, exe engine.Executable, s strategy.Step) (engine.Timing, error) {
	if d.steps++; d.steps == 3 && d.group.Rank() == 1 {
		return engine.Timing{}, errors.Join(errors.New("killed"), d.group.Close())
	}
	return d.Strategy.Step(ctx, exe, s)
}

// TestRemovedStrategyOptions: a run with an option that was removed still predicts, and its resume is
// refused by the option's name.
func TestRemovedStrategyOptions(t *testing.T) {
	for option, recorded := range map[string]any{
		"strategy.backup_workers=1":               map[string]any{"name": "paramserver", "servers": 1, "max_staleness": 0, "backup_workers": 1},
		"strategy.gradient_compression=topk:0.01": map[string]any{"name": "ddp", "broadcast_buffers": false, "no_communication": false, "gradient_compression": "topk:0.01"},
	} {
		cfg := tiny()
		cfg.Epochs, cfg.Strategy.Name = 1, recorded.(map[string]any)["name"].(string)
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		run, err := runs.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		current := maps.Clone(run.Info.Config)
		run.Info.Config["strategy"] = recorded
		text, err := json.Marshal(run.Info)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "run.json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := "resume " + dir + ": read strategy in config: " + option + " was removed from Lockstep: train again without it, in another run folder"
		if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Resume: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: resumed with error %v, want %s", option, err, want)
		}
		if d := Differences(run.Info.Config, current); len(d) == 0 {
			t.Errorf("%s: the config equals one without it", option)
		}
		trained, err := OpenTrained(t.Context(), dir, nil)
		if err != nil {
			t.Fatalf("%s: %v", option, err)
		}
		if err := trained.Close(); err != nil {
			t.Error(err)
		}
	}
}
