package launch_test

import (
	"context"
	"fmt"
	"os"

	"lockstep/pkg/launch"
)

// Any program can be launched. This one only prints its rank.
func ExampleLocal() {
	logs, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(logs) }()

	ctx := context.Background() // notebook.Context() in a cell
	job, err := launch.Local(ctx, launch.Sweep{
		Command: []string{"/bin/sh", "-c", "echo I am rank $RANK of $WORLD_SIZE"},
		Series:  "hello", Study: "first-steps", Logs: logs,
		Workers: []int{1, 2}, Oversubscribe: true, // so that the example runs on one core, too
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := job.Wait(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, run := range job.Status() {
		fmt.Println(run.Name, run.State+":", run.Line)
	}
	// Output:
	// hello-n1-s1 done: I am rank 0 of 1
	// hello-n2-s1 done: I am rank 0 of 2
}
