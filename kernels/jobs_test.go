package kernels

import (
	"fmt"
	"strings"
	"testing"
)

// longSweep is a cell that launches a sweep which no test waits for, and waits
// until it trains.
func longSweep(logs, more string) string {
	return fmt.Sprintf(`import ("context"; "errors"; "fmt"; "time"; "lockstep/pkg/launch"; "lockstep/pkg/notebook")
ctx := notebook.Context()
job, err := launch.Local(ctx, launch.Sweep{
	Config: "unet2d-cells", Workers: []int{1}, Logs: %q, Epochs: 1000000, %s
	Set: []string{"model.base=2", "model.depth=1", "data.count=8", "data.height=16", "data.width=16", "data.test_images=2", "batch=1", "checkpoint.every=1000000"},
})
if err == nil { for job.Status()[0].Epoch == 0 && job.Status()[0].State != "failed" { time.Sleep(50 * time.Millisecond) } }
fmt.Println(err)`, logs, more)
}

// wantCells compares what cells show with want; "" is not compared.
func wantCells(t *testing.T, answers []answer, want ...string) {
	t.Helper()
	for i, a := range answers {
		if want[i] != "" && a.show() != want[i] {
			t.Errorf("cell %d shows\n%s\nwant\n%s", i, a.show(), want[i])
		}
	}
}

const stateOfJob = "fmt.Println(job.Status()[0].State)"

// TestInterruptLeavesSweepsAlone: an interrupt ends the cell, whether or not it
// watches the sweep; the sweep trains on, and the context that was kept is alive in
// the next cell. Cancel ends the sweep.
func TestInterruptLeavesSweepsAlone(t *testing.T) {
	second, logs := 1.0, t.TempDir()
	a := drive(t,
		step{Execute: longSweep(logs, "")},
		step{Execute: "fmt.Println(\"go\")\ntime.Sleep(time.Minute)", InterruptOn: "go"},
		step{Execute: stateOfJob},
		step{Execute: "watched := job.Watch(ctx)\nfmt.Println(watched)", InterruptAfter: &second},
		step{Execute: "before := job.Status()[0].Epoch\nfor job.Status()[0].Epoch == before { time.Sleep(50 * time.Millisecond) }\nfmt.Println(job.Status()[0].State, ctx.Err())"},
		step{Execute: "canceled := job.Cancel()\nended := job.Wait(ctx)\nfmt.Println(canceled, errors.Is(ended, context.Canceled), job.Status()[0].State)"},
	)
	wantCells(t, a, started(logs), "", "stdout \"running\\n\"", "", "stdout \"running <nil>\\n\"", "stdout \"<nil> true canceled\\n\"")
	for _, i := range []int{1, 3} {
		if !strings.HasSuffix(a[i].show(), `error "interrupted"`) {
			t.Errorf("interrupted cell %d shows\n%s", i, a[i].show())
		}
	}
}

// started is what the cell of longSweep shows.
func started(logs string) string {
	return fmt.Sprintf("display_data \"folder of the runs: %s/unet2d-cells\"\nstdout \"<nil>\\n\"", logs)
}

// TestRestartAndAttach: a sweep ends with its kernel, which is killed, or goes on
// if it is detached; then the next kernel attaches to it and may end it.
func TestRestartAndAttach(t *testing.T) {
	attached := func(logs string) string {
		return fmt.Sprintf("import (\"context\"; \"errors\"; \"fmt\"; \"time\"; \"lockstep/pkg/launch\"; \"lockstep/pkg/notebook\")\n"+
			"ctx := notebook.Context()\njob, err := launch.Attach(%q)\nfmt.Println(err)", logs+"/unet2d-cells")
	}
	logs := t.TempDir()
	a := drive(t,
		step{Execute: longSweep(logs, "Detach: true,")},
		step{Restart: true},
		step{Execute: attached(logs)},
		step{Execute: "before := job.Status()[0].Epoch\nfor job.Status()[0].Epoch == before { time.Sleep(50 * time.Millisecond) }\n" + stateOfJob},
		step{Execute: "for job.Attached() { time.Sleep(50 * time.Millisecond) }\ncanceled := job.Cancel()\nended := job.Wait(ctx)\nfmt.Println(canceled, errors.Is(ended, context.Canceled), job.Status()[0].State)"},
	)
	wantCells(t, a, started(logs), "", "stdout \"<nil>\\n\"", "stdout \"running\\n\"", "stdout \"<nil> true canceled\\n\"")

	// The same if the kernel ends by itself.
	logs = t.TempDir()
	a = drive(t,
		step{Execute: longSweep(logs, "Detach: true,")},
		step{Execute: exitInCompiledCode, Dies: true},
		step{Restart: true},
		step{Execute: attached(logs)},
		step{Execute: "before := job.Status()[0].Epoch\nfor job.Status()[0].Epoch == before { time.Sleep(50 * time.Millisecond) }\n" + stateOfJob},
		step{Execute: "for job.Attached() { time.Sleep(50 * time.Millisecond) }\ncanceled := job.Cancel()\nended := job.Wait(ctx)\nfmt.Println(canceled, errors.Is(ended, context.Canceled), job.Status()[0].State)"},
	)
	wantCells(t, a, started(logs), "", "", "", "stdout \"running\\n\"", "stdout \"<nil> true canceled\\n\"")

	logs = t.TempDir()
	a = drive(t,
		step{Execute: longSweep(logs, "")},
		step{Restart: true},
		step{Execute: attached(logs)},
		step{Execute: "ended := job.Wait(ctx)\nfmt.Println(errors.Is(ended, context.Canceled), job.Status()[0].State)"},
	)
	wantCells(t, a, started(logs), "", "stdout \"<nil>\\n\"", "stdout \"true canceled\\n\"")
}
