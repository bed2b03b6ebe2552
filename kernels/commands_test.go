package kernels

import (
	"fmt"
	"slices"
	"testing"
)

// The first lines of a cell may be commands: the shell expands ~ and variables, runs pipes, and its exit
// code is shown without failing the cell.
func TestCommands(t *testing.T) {
	kernelDir(t) // calls the go command, which needs the user's home folder
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("LOCKSTEP_NAME", "a b")
	checkCells(t, [][2]string{
		{"$echo one", `stdout "one\n"`},
		{"  $ echo one\n\n$echo two", `stdout "one\ntwo\n"`},
		{`$test ~ = "$HOME" && echo "${LOCKSTEP_NAME}" $LOCKSTEP_NAME`, `stdout "a b a b\n"`},
		{`$echo "x   y" | tr x z`, `stdout "z   y\n"`},
		{"$exit 3", `stdout "exit code 3\n"`},
		{"$false\n$echo next", `stdout "exit code 1\nnext\n"`},
		{"$echo out; echo wrong >&2; exit 2", "stdout \"out\\nexit code 2\\n\"\nstderr \"wrong\\n\""},
		{"$kill -9 $$", `stdout "ended by signal: killed\n"`},
		{"$sleep 1000 &\n$echo done; kill $(pgrep -f '[s]leep 1000')", `stdout "done\n"`},
		{"%cd ~\n$test \"$PWD\" = ~ && echo home\nimport \"os\"\nos.Getenv(\"LOCKSTEP_NAME\")", "stdout \"home\\n\"\nexecute_result \"a b\""},
		{"%cd $HOME/missing", fmt.Sprintf("error %q", "line 1, column 1: change folder: chdir "+home+"/missing: no such file or directory")},
		{"%timeit x", `error "line 1, column 1: unknown command %timeit: the kernel has %cd and %help, and runs lines that begin with $ in the shell"`},
		// Nothing runs if the cell has a syntax error.
		{"$echo printed\nx = = 3", `error "line 2, column 5: expected operand, found '='; write == to compare and = to assign"`},
	})
}

// The output of a command is complete: it was lost in 5 % of all cells when the kernel closed the pipe as
// soon as the command had ended.
func TestOutputOfCommandsIsComplete(t *testing.T) {
	t.Parallel()
	for i, a := range drive(t, slices.Repeat(cells("$echo one; echo two >&2"), 200)...) {
		if got := a.collected(); got != "stdout \"one\\n\"\nstderr \"two\\n\"" {
			t.Errorf("cell %d shows %q", i, got)
		}
	}
}

// An interrupt ends the command and its children.
func TestInterruptOfACommand(t *testing.T) {
	a := drive(t,
		step{Execute: "$echo ready; sleep 1000; echo more\nx := 1", InterruptOn: "ready"},
		step{Execute: "$(trap '' INT; echo ready; sleep 1000)\nx := 1", InterruptOn: "ready"},
		step{Execute: "x"},
	)
	for _, a := range a[:2] {
		if got := a.show(); got != "stdout \"ready\\n\"\nerror \"interrupted\"" {
			t.Errorf("the cell shows\n%s", got)
		}
	}
	if got := a[2].show(); got != `error "line 1, column 1: undefined identifier: x"` {
		t.Errorf("the line after the interrupted command has run: %s", got)
	}
}
