package textlog

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// Command returns the format of commands that start a training, and of lines with the number of its workers.
func Command() format {
	return format{name: "command", lines: append(worldRules(),
		lineRule{first: "rusp+$mhtda", read: (*textLog).readCommand},
	)}
}

// Slurm returns the format of Slurm's messages about a job.
func Slurm() format {
	return format{name: "Slurm", lines: []lineRule{
		{prefix: "slurmstepd: ", read: (*textLog).readSlurmCancel},
	}}
}

// readCommand reads a command that starts a training, as a shell script prints
// it after "set -x":
//
//	srun -n 4 python train.py
//	+ python ResNet50.py --epochs 5 --batch_size 256 --n_gpus 1
//
// It begins a new run if the current one already has values.
func (t *textLog) readCommand(m []byte) lineResult {
	m = bytes.TrimLeft(m, "+$ ")
	first, _, _ := bytes.Cut(m, []byte(" "))
	if i := bytes.LastIndexByte(first, '/'); i >= 0 {
		first = first[i+1:]
	}
	switch string(first) {
	case "python", "python3", "srun", "mpirun", "mpiexec", "horovodrun", "torchrun", "accelerate", "deepspeed", "time":
	default:
		return unknown
	}
	if len(m) > 1<<14 || !bytes.Contains(m, []byte(".py ")) && !bytes.HasSuffix(m, []byte(".py")) && !bytes.Contains(m, []byte(" -m ")) && !bytes.Contains(m, []byte("osu_allreduce")) && !bytes.Contains(m, []byte("all_reduce_perf")) {
		return unknown
	}
	if _, _, ok := cutZshTime(m); ok { // the time that the command took
		return unknown
	}
	words := strings.Fields(string(m))
	for _, w := range words { // a traceback or a message that begins in the same way
		if strings.HasSuffix(w, ":") {
			return unknown
		}
	}
	if t.cur.closed || !t.cur.epochs.isEmpty() || len(t.cur.trials) > 0 || len(t.cur.curves) > 0 || len(t.cur.run.AllReduces) > 0 || t.cur.tableBegun || len(t.cur.iterationRates) > 0 {
		t.beginRun()
	}
	run := t.countLine(formatCommand)
	if before := run.run.Info.Command; len(before) > 0 {
		// The command of another rank, the one that srun starts, or that of another program: the
		// launcher of the program whose output follows counts.
		old, l := launchline.Parse(before), launchline.Parse(words)
		if l.Script == old.Script || l.Launcher == "" && (l.Script == "" || old.Script == "") {
			return idle
		}
		for name := range numericFlags(before) {
			delete(run.run.Info.Config, name)
		}
	}
	t.useCommand(words, m)
	return used
}

// useCommand stores the words of a command in the current run, and sets what they
// reveal about it. text is the line for messages.
func (t *textLog) useCommand(words []string, text []byte) {
	run := t.cur
	run.run.Info.Command = words
	run.claims = launchline.Claims(words, fmt.Sprintf("line %d: %.100q", t.l.Number, text))
	t.addFlags(words)
}

// addFlags adds the command's flags with a numeric value to the run's
// configuration.
func (t *textLog) addFlags(words []string) {
	for name, v := range numericFlags(words) {
		t.addSetting(name, v)
	}
}

// numericFlags returns the command's flags with a numeric value.
func numericFlags(words []string) map[string]float64 {
	flags := map[string]float64{}
	for i, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		if !isFlag {
			continue
		}
		name, text, joined := strings.Cut(name, "=")
		if !joined && i+1 < len(words) {
			text = words[i+1]
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil && scan.IsName([]byte(name)) {
			flags[name] = v
		}
	}
	return flags
}

// readSlurmCancel reads the line that Slurm prints when it cancels a job.
//
//	slurmstepd: error: *** JOB 1234 ON node01 CANCELLED AT 2024-05-04T10:00:00 DUE TO TIME LIMIT ***
func (t *textLog) readSlurmCancel(m []byte) lineResult {
	if !bytes.Contains(m, []byte(" CANCELLED AT ")) {
		return unknown
	}
	run := t.countLine(formatSlurm)
	run.run.Info.Status, run.run.Info.Error = runs.StatusCanceled, "Slurm: "+strings.Trim(strings.TrimPrefix(string(m[:min(len(m), 300)]), "slurmstepd: error: "), "* ")
	t.in.Report.Records++
	return used
}
