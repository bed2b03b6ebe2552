package textlog

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

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
	if t.cur.closed || !t.cur.epochs.isEmpty() || len(t.cur.trials) > 0 || len(t.cur.curves) > 0 || len(t.cur.run.AllReduces) > 0 || t.cur.nccl.begun || len(t.cur.horovod.iterations) > 0 {
		t.beginRun()
	}
	run := t.countLine(formatCommand)
	if len(run.run.Info.Command) > 0 { // the command of another rank, or the one that srun starts
		return idle
	}
	t.useCommand(words, m)
	return used
}

// useCommand stores the words of a command in the current run, and sets what they
// reveal about it. text is the line for messages.
func (t *textLog) useCommand(words []string, text []byte) {
	run := t.cur
	run.run.Info.Command = words
	run.claims = nil
	from := fmt.Sprintf("line %d: %.100q", t.l.Number, text)
	if n := record.CommandWorkers(words); n > 0 {
		run.claims = append(run.claims, record.Claim{Property: runs.PropertyWorkers, Number: int64(n), Origin: runs.Origin{Source: runs.SourceCommand, Detail: from}})
	}
	if name := record.ScriptName(words); name != "" {
		run.claims = append(run.claims, record.Claim{Property: runs.PropertySeries, Text: name, Origin: runs.Origin{Source: runs.SourceCommand, Detail: from}})
	}
	t.addFlags(words)
}

// addFlags adds the command's flags with a numeric value to the run's
// configuration.
func (t *textLog) addFlags(words []string) {
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
			t.addSetting(name, v)
		}
	}
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
