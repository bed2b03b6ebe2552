package logread

import (
	"fmt"
	"strings"
	"testing"
)

const oneKerasEpoch = "Epoch 1/1\n9/9 - 5s - loss: 2.0 - accuracy: 0.25\n"

// gnuTime returns what /usr/bin/time -v prints after a command.
func gnuTime(elapsed, status string) string {
	return "\tCommand being timed: \"python train.py --epochs 1\"\n\tUser time (seconds): 11.20\n\tSystem time (seconds): 0.50\n\tPercent of CPU this job got: 98%\n" +
		"\tElapsed (wall clock) time (h:mm:ss or m:ss): " + elapsed + "\n\tAverage shared text size (kbytes): 0\n\tMaximum resident set size (kbytes): 76116\n" +
		"\tVoluntary context switches: 2592\n\tSwaps: 0\n\tPage size (bytes): 4096\n\tExit status: " + status + "\n"
}

// TestTimes checks the wall times that shells and GNU time print after a
// command.
func TestTimes(t *testing.T) {
	const zsh = "python train.py --epochs 1  12.34s user 0.45s system 98%% cpu %s total\n"
	const gnu = "11.20user 0.50system %selapsed 98%%CPU (0avgtext+0avgdata 76116maxresident)k\n0inputs+8outputs (0major+2592minor)pagefaults 0swaps\n"
	for name, c := range map[string]struct {
		text string
		want []string // kind, wall seconds, number of epochs, status of each run
		says string
	}{
		"bash":                     {"real\t0m12.345s\nuser\t0m11.200s\nsys\t0m0.500s\n", []string{"bash time 12.345 0 done"}, ""},
		"bash, decimal comma":      {"real\t2m12,345s\nuser\t0m11,200s\nsys\t0m0,500s\n", []string{"bash time 132.345 0 done"}, ""},
		"bash after epochs":        {oneKerasEpoch + "\nreal\t0m12,5s\nuser\t0m11,2s\nsys\t0m0,5s\n" + oneKerasEpoch, []string{"Keras log 12.5 1 done", "Keras log 0 1 done"}, ""},
		"zsh":                      {fmt.Sprintf(zsh, "12.987"), []string{"zsh time 12.987 0 done"}, ""},
		"zsh, minutes":             {fmt.Sprintf(zsh, "2:12.98"), []string{"zsh time 132.98 0 done"}, ""},
		"zsh, hours":               {fmt.Sprintf(zsh, "1:02:12.98"), []string{"zsh time 3732.98 0 done"}, ""},
		"zsh, decimal comma":       {strings.ReplaceAll(fmt.Sprintf(zsh, "12.987"), ".", ","), []string{"zsh time 12.987 0 done"}, ""},
		"zsh, two runs":            {strings.Repeat(oneKerasEpoch+fmt.Sprintf(zsh, "12.5"), 2), []string{"Keras log 12.5 1 done", "Keras log 12.5 1 done"}, ""},
		"zsh, a script":            {oneKerasEpoch + "./train.sh 4  12.34s user 0.45s system 98% cpu 12.5 total\n", []string{"Keras log 12.5 1 done"}, ""},
		"zsh, subshell":            {oneKerasEpoch + "( python a.py; )  12.34s user 0.45s system 98% cpu 12.5 total\n", []string{"Keras log 12.5 1 done"}, ""},
		"zsh, torn":                {oneKerasEpoch + "python train.py  12.34s user 0.45s system 98% cpu 12.5", []string{"Keras log 0 1 done"}, "line 3: last line is torn"},
		"zsh, torn early":          {oneKerasEpoch + "python train.py  12.34s user 0.45s sys", []string{"Keras log 0 1 done"}, "line 3: zsh's time: expected"},
		"GNU":                      {fmt.Sprintf(gnu, "0:13.01"), []string{"GNU time 13.01 0 done"}, ""},
		"GNU, hours":               {oneKerasEpoch + fmt.Sprintf(gnu, "1:02:03") + oneKerasEpoch, []string{"Keras log 3723 1 done", "Keras log 0 1 done"}, ""},
		"GNU, failed":              {oneKerasEpoch + "Command exited with non-zero status 3\n" + fmt.Sprintf(gnu, "0:13.01"), []string{"Keras log 13.01 1 failed"}, ""},
		"GNU, killed":              {oneKerasEpoch + "Command terminated by signal 9\n" + fmt.Sprintf(gnu, "0:13.01"), []string{"Keras log 13.01 1 failed"}, ""},
		"GNU, torn":                {oneKerasEpoch + "11.20user 0.50system 0:13.01elapsed 98", []string{"Keras log 0 1 done"}, "line 3"},
		"GNU, verbose":             {gnuTime("0:16.19", "0"), []string{"GNU time 16.19 0 done"}, ""},
		"GNU, verbose, hours":      {gnuTime("1:00:16", "0"), []string{"GNU time 3616 0 done"}, ""},
		"GNU, verbose, two runs":   {strings.Repeat(oneKerasEpoch+gnuTime("0:16.19", "0"), 2), []string{"Keras log 16.19 1 done", "Keras log 16.19 1 done"}, ""},
		"GNU, verbose, failed":     {oneKerasEpoch + gnuTime("0:16.19", "1"), []string{"Keras log 16.19 1 failed"}, ""},
		"GNU, verbose, torn":       {oneKerasEpoch + "\tElapsed (wall clock) time (h:mm:ss or m:ss): 0:16.1", []string{"Keras log 0 1 done"}, "line 3: last line is torn"},
		"GNU, verbose, of no time": {oneKerasEpoch + "\tElapsed (wall clock) time (h:mm:ss or m:ss): soon\n", []string{"Keras log 0 1 done"}, "line 3: expected a time"},
		"words that end in total":  {oneKerasEpoch + "we count 3 in total\n7 elapsed and a snack\n", []string{"Keras log 0 1 done"}, "2 lines, the first is line 3: of unknown form"},
	} {
		found, report := readReport(t, "e_1gpu.log", c.text)
		var got []string
		for _, r := range found {
			got = append(got, fmt.Sprintf("%s %g %d %s", r.Kind, r.WallSeconds, len(r.Epochs), r.Info.Status))
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(report.String(), c.says) || c.says == "" && len(report.Unused) > 0 {
			t.Errorf("%s: got %q, want %q\n%s, want %q", name, got, c.want, report, c.says)
		}
		if n := report.LinesUsed + report.LinesIgnored() + int64(len(report.Unused)); n != report.Lines {
			t.Errorf("%s: %d lines used, ignored or with problems, of %d\n%s", name, n, report.Lines, report)
		}
	}
	// The command of zsh's line gives what the log lacks.
	found, report := readReport(t, "zsh.log", oneKerasEpoch+"torchrun --nproc_per_node 4 unet.py  12.34s user 0.45s system 98% cpu 12.5 total\n")
	if len(found) != 1 || found[0].Info.Workers != 4 || found[0].Info.Series != "unet" {
		t.Errorf("got %+v\n%s", found, report)
	}
}

// seff returns what Slurm's seff prints of a job.
func seff(job, state, elapsed string) string {
	return "Job ID: " + job + "\nCluster: hpc\nUser/Group: ada/users\nState: " + state + "\nNodes: 2\nCores per node: 16\nCPU Utilized: 16:08:54\n" +
		"CPU Efficiency: 43.20% of 1-13:22:48 core-walltime\nJob Wall-clock time: " + elapsed + "\nMemory Utilized: 32.29 GB\nMemory Efficiency: 50.45% of 64.00 GB\n"
}

// TestSeff checks that the output of seff belongs to the job's run, wherever it
// was stored.
func TestSeff(t *testing.T) {
	const ok = "COMPLETED (exit code 0)"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // name, wall seconds, epochs, nodes, status, job
		says  string   // in the report of the first file
	}{
		"alone": {map[string]string{"seff.txt": seff("7700", ok, "01:02:03") + seff("7800", "TIMEOUT (exit code 0)", "1-00:00:01")}, []string{"seff.txt#7700 3723s 0 2 done 7700", "seff.txt#7800 86401s 0 2 canceled 7800"}, ""},
		"beside the log of the job": {
			map[string]string{"seff-7700.txt": seff("7700", ok, "01:02:03"), "slurm-7700.out": oneKerasEpoch}, []string{"slurm-7700.out 3723s 1 2 done 7700"}, "",
		},
		"beside the log and sacct": {
			map[string]string{"a.txt": seff("7700", ok, "01:02:03"), "b.txt": "JobID|JobName|State|ExitCode|Elapsed\n7700|unet|COMPLETED|0:0|01:02:03\n", "slurm-7700.out": oneKerasEpoch},
			[]string{"slurm-7700.out 3723s 1 2 done 7700"},
			"",
		},
		"and sacct without the log": {
			map[string]string{"a.txt": seff("7700", ok, "01:02:03"), "b.txt": "JobID|JobName|State|ExitCode|Elapsed\n7700|unet|COMPLETED|0:0|01:02:03\n"},
			[]string{"a.txt#7700 3723s 0 2 done 7700"},
			"",
		},
		"at the end of the log": {map[string]string{"a_n4.log": oneKerasEpoch + seff("7700", "FAILED (exit code 1)", "01:02:03")}, []string{"a_n4.log 3723s 1 2 failed 7700"}, ""},
		"of a task": {
			map[string]string{"seff.txt": strings.Replace(seff("7900", ok, "00:02:03"), "Cluster", "Array Job ID: 7700_2\nCluster", 1), "slurm-7700_2.out": oneKerasEpoch}, []string{"slurm-7700_2.out 123s 1 2 done 7700_2"}, "",
		},
		"running": {map[string]string{"seff.txt": seff("7700", "RUNNING", "00:02:03")}, []string{"seff.txt#7700 123s 0 2 running 7700"}, ""},
		"torn":    {map[string]string{"seff.txt": strings.SplitAfter(seff("7700", ok, "01:02:03"), "time: ")[0] + "01:0"}, nil, "line 9: last line is torn"},
		"of another program": {
			map[string]string{"a_1gpu.log": "Job ID: 12\n" + oneKerasEpoch + "State: fine\nNodes: 4\n"}, []string{"a_1gpu.log 0s 1 0 done "}, "3 lines, the first is line 1",
		},
	} {
		dir := t.TempDir()
		write(t, dir, c.files)
		logs, reports := explained(t, dir)
		var got []string
		for _, r := range logs.Runs {
			got = append(got, fmt.Sprintf("%s %gs %d %d %s %s", strings.TrimPrefix(r.Dir, dir+"/"), r.WallSeconds, len(r.Epochs), r.Info.Nodes, r.Info.Status, r.Info.JobIDs["slurm"]))
		}
		all := ""
		for _, r := range reports {
			all += r.String()
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || !strings.Contains(all, c.says) {
			t.Errorf("%s: got %q, want %q\n%s, want %q", name, got, c.want, all, c.says)
		}
	}
}
