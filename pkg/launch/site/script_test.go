package site

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/internal/process"
)

// TestArgumentsThroughBash runs scripts with real bash. A stub of srun writes the arguments that
// it receives and a variable of its environment, each followed by a NUL character, to a file.
// They must be those of the job.
func TestArgumentsThroughBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err) // of every system that has sbatch; the project's scripts also need it
	}
	dir := t.TempDir()
	received := filepath.Join(dir, "received")
	stub := "#!" + bash + "\nprintf '%s\\0' \"$@\" \"$MESSAGE\" > " + received + "\n"
	if err := os.WriteFile(filepath.Join(dir, "srun"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Load("generic")
	if err != nil {
		t.Fatal(err)
	}
	check := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, command []string, message string,
	) {
		t.Helper()
		script, err := p.Script(Job{Command: command, Environment: []string{"MESSAGE=" + message}})
		if err != nil {
			t.Fatalf("%v", err)
		}
		cmd := exec.Command(bash)
		cmd.Stdin = strings.NewReader(script)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + dir}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s\n%s", err, out, script)
		}
		text, err := os.ReadFile(received)
		if err != nil {
			t.Fatalf("%v", err)
		}
		got := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if want := append(slices.Clone(command), message); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q, from\n%s", got, want, script)
		}
	}
	check(t, []string{"python", "a b", `"`, "'", "it's", "line\nbreak", "$HOME", "`id`", "$(id)", `\`, "*", "", "~", "#", "!!", "a=b", "-", "ü", ";", "&", "|", "<", "\t"}, "a\n'b' \"$c\"")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~\n\t]{0,12}`), rapid.StringMatching(`[^\x00]{0,8}`))
		command := append([]string{"program"}, rapid.SliceOfN(text, 0, 5).Draw(t, "arguments")...)
		check(t, command, text.Draw(t, "message"))
	})
}

// TestLinesProperty checks for any texts that each line before the command is an option or a
// setting that the package wrote: no text of a job can add a line of its own.
func TestLinesProperty(t *testing.T) {
	p, err := Load("local-test")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string) string { return rapid.StringMatching(`[ -~\n]{0,6}`).Draw(t, label) }
		j := Job{
			Name: text("name"), Account: text("account"), Partition: text("partition"), Reservation: text("reservation"),
			Dependency: text("dependency"), Array: text("array"), Output: text("output"), Signal: text("signal"),
			Folder: "/" + text("folder"), Command: []string{"program"},
		}
		script, err := p.Script(j)
		if err != nil {
			return
		}
		options, rest, _ := strings.Cut(script, "\n\n")
		for i, line := range strings.Split(options, "\n") {
			if i > 0 && !strings.HasPrefix(line, "#SBATCH --") {
				t.Fatalf("unexpected line %q in\n%s", line, script)
			}
		}
		if n := strings.Count(rest, "\n"); n != 5 { // four exports and the command
			t.Fatalf("got %d lines after the options, want 5:\n%s", n, script)
		}
	})
}

// TestQuoteOption checks values as sbatch of Slurm 22.05 reads them: each was submitted, and the
// name of the job's output was the value.
func TestQuoteOption(t *testing.T) {
	for value, want := range map[string]string{
		"/a/%x-%j.out": "/a/%x-%j.out", "a b": `"a b"`, "a#b": `"a#b"`, "it's": `"it's"`, `a"b`: `"a\"b"`, "0-49%4": "0-49%4", "ü": `"ü"`,
	} {
		if got := quoteOption(value); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

// TestScriptErrors checks the message for each value that cannot be written.
func TestScriptErrors(t *testing.T) {
	p, err := Load("generic")
	if err != nil {
		t.Fatal(err)
	}
	for want, j := range map[string]Job{
		`the account "a;b c" cannot be written to a job script: use letters, digits and -_.,:/ without spaces, as in training2023`: {Account: "a;b c"},
		`the array "1 2" cannot be written to a job script`:                                                                        {Array: "1 2"},
		`the partition "--x" cannot be written to a job script`:                                                                    {Partition: "--x"},
		`"usr1" is not a signal for sbatch: use a signal and the seconds before`:                                                   {Signal: "usr1"},
		`the path of the folder "logs" is relative: use an absolute path`:                                                          {Folder: "logs"},
		`Slurm cannot write to "/a\nb", because the name contains a control`:                                                       {Folder: "/a\nb"},
		"Slurm cannot write to \"a\\\\b\"":                                                                                         {Output: `a\b`},
		`"A" is not an environment variable with a value: use NAME=VALUE`:                                                          {Environment: []string{"A"}},
		`"a\x00" contains a NUL character`:                                                                                         {Command: []string{"a\x00"}},
		`the job has no command: name the program that the job runs`:                                                               {Command: []string{}},
		`the job has -1 nodes: use 1 to 1048576`:                                                                                   {Nodes: -1},
		`write job script for site generic: the name "a\nb"`:                                                                       {Name: "a\nb"},
	} {
		if j.Command == nil {
			j.Command = []string{"true"}
		}
		if _, err := p.Script(j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// TestArrayScript runs the script of an array with real bash, in folders whose names need quotes.
func TestArrayScript(t *testing.T) {
	p, err := Load("generic")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "it's a study")
	list := filepath.Join(dir, "list.txt")
	var folders string
	for _, name := range []string{"first run", "second run"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "job.sh"), []byte("echo "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		folders += filepath.Join(dir, name) + "\n"
	}
	if err := os.WriteFile(list, []byte(folders), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := p.ArrayScript(Job{Name: "study-n1", Array: "0-1"}, list, "job.sh")
	if err != nil || !strings.Contains(script, "#SBATCH --array=0-1\n") {
		t.Fatalf("got %s, %v, want an array", script, err)
	}
	for task, want := range map[string]string{"0": "first run\n", "1": "second run\n", "2": ""} {
		cmd := exec.Command("bash", "-c", script)
		cmd.Env = append(os.Environ(), "SLURM_ARRAY_TASK_ID="+task)
		out, err := cmd.Output()
		if string(out) != want || (err == nil) != (want != "") {
			t.Errorf("task %s: got %q, %v, want %q", task, out, err, want)
		}
	}
	if _, err := p.ArrayScript(Job{Array: "0-1; true"}, list, "job.sh"); err == nil {
		t.Error("got no error for an array that is no list of numbers")
	}
}

// TestSequenceScript runs the script of a job for several runs: it executes them one after another, keeps the exit code and
// the output of each, and leaves out the runs that are done, as after a requeue.
func TestSequenceScript(t *testing.T) {
	p, err := Load("generic")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	list := filepath.Join(root, "a list")
	var text strings.Builder
	for i, name := range []string{"done", "fails", "works now"} {
		dir := filepath.Join(root, name)
		script := fmt.Sprintf("echo run %d; read line; echo \"$line\"; exit $(cat %s/code)\n", i, process.QuoteShellArgument(dir))
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "job.sh"), []byte(script), 0o600)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, dir)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a list", text.String())
	write("done/job.exit", "0\n")
	write("fails/code", "3")
	write("works now/code", "0")
	write("works now/job.exit", "75\n") // it was saved before the requeue
	script, err := p.SequenceScript(Job{Name: "all"}, list, "job.sh", "job.exit")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Env = append(os.Environ(), "SLURM_JOB_ID=17")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || len(out) > 0 {
		t.Errorf("got %v and output %q, want exit code 3 and none", err, out)
	}
	for name, want := range map[string]string{"done/job.exit": "0\n", "fails/job.exit": "3\n", "works now/job.exit": "0\n", "fails/slurm-17.out": "run 1\n\n", "works now/slurm-17.out": "run 2\n\n"} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "done", "slurm-17.out")); err == nil {
		t.Error("a run that is done was executed again")
	}
}
