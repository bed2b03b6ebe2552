package logread

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/runs"
)

// What Slurm accounted, as sacct -P (or --parsable2) prints it: a header, and a
// row a job and a row each of its steps (.batch, .extern, .0).
//
//	JobID|JobName|Partition|State|ExitCode|Elapsed
//	1234|unet|gpu|COMPLETED|0:0|05:42:11
//	1234.batch|batch||COMPLETED|0:0|05:42:11
const sacctKind = "sacct"

func isSacct(_ string, head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.HasPrefix(first, []byte("JobID|")) || bytes.HasPrefix(first, []byte("JobIDRaw|")) || bytes.Contains(first, []byte("|JobID|"))
}

// readSacct gives a part a job.
func readSacct(_ context.Context, in *input) ([]*part, error) {
	l := newLines(in.r, in.size)
	var columns []string
	var parts []*part
	byID := map[string]*part{}
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		in.report.Lines++
		switch {
		case l.cut:
			in.problem(l.number, "line is longer than %d bytes", maxLine)
		case columns == nil:
			columns = strings.Split(string(line), "|")
			in.report.LinesUsed++
		case len(bytes.TrimSpace(line)) == 0:
			in.report.ignore(l.number, blankLine)
		default:
			cells := strings.Split(string(line), "|")
			if len(cells) == len(columns)+1 && cells[len(columns)] == "" { // -p ends rows with a bar
				cells = cells[:len(columns)]
			}
			if len(cells) != len(columns) {
				in.problem(l.number, "expected %d cells, got %d: %.80q", len(columns), len(cells), line)
				continue
			}
			row := map[string]string{}
			for i, c := range columns {
				row[c] = cells[i]
			}
			parts = sacctRow(in, l.number, row, parts, byID)
		}
	}
	if l.err != nil {
		return nil, fmt.Errorf("read %s after line %d: %w", in.path, l.number, l.err)
	}
	if len(parts) == 0 && len(in.report.Unused) == 0 {
		in.problem(0, "no job that has begun stands there")
	}
	in.report.Records = int64(len(parts))
	return parts, nil
}

// sacctRow takes a row: a job's, or what its steps say more.
func sacctRow(in *input, line int, row map[string]string, parts []*part, byID map[string]*part) []*part {
	id := row["JobID"]
	if id == "" {
		id = row["JobIDRaw"]
	}
	job, step, isStep := strings.Cut(id, ".")
	if p := byID[job]; isStep {
		if p == nil || step == "extern" {
			in.report.ignore(line, "a step of a job (.batch, .extern)")
			return parts
		}
		in.report.LinesUsed++
		sacctNumbers(in, line, row, &p.run, step != "batch")
		return parts
	}
	if job == "" || strings.Trim(job[:1], "0123456789") != "" {
		in.problem(line, "expected a job's number, got %.40q", id)
		return parts
	}
	if strings.Contains(job, "_[") || row["State"] == "PENDING" && byID[job] == nil {
		in.report.ignore(line, "jobs and tasks that have not begun")
		return parts
	}
	if byID[job] != nil {
		in.problem(line, "job %s stands here again (it was queued again); the later row counts", job)
		byID[job].run = runs.Run{Dir: byID[job].run.Dir}
	} else {
		byID[job] = &part{role: accounting, line: line}
		byID[job].run.Dir = in.path + "#" + job
		parts = append(parts, byID[job])
	}
	in.report.LinesUsed++
	p := byID[job]
	p.run.Info.JobIDs = map[string]string{slurmJob: job}
	p.run.Info.Series = row["JobName"]
	p.run.Info.Status, p.run.Info.Error = sacctState(row["State"], row["ExitCode"])
	for column, at := range map[string]*time.Time{"Start": &p.run.Info.Started, "End": &p.run.Info.Ended} {
		if t, err := time.Parse("2006-01-02T15:04:05", row[column]); err == nil {
			*at = t
		}
	}
	sacctNumbers(in, line, row, &p.run, true)
	return parts
}

// sacctNumbers takes elapsed time, nodes, devices and energy of a row.
func sacctNumbers(in *input, line int, row map[string]string, run *runs.Run, tasks bool) {
	if text, ok := row["Elapsed"]; ok && run.WallSeconds == 0 {
		v, ok := slurmSeconds(text)
		if !ok {
			in.problem(line, "column Elapsed: expected [days-]hours:minutes:seconds, got %.40q", text)
		}
		run.WallSeconds = v
	}
	info := &run.Info
	if n, err := strconv.Atoi(row["NNodes"]); err == nil && n > 0 && n <= maxWorkers {
		info.Nodes = max(info.Nodes, n)
	}
	for _, column := range []string{"AllocTRES", "AllocGRES", "ReqTRES"} {
		for _, item := range strings.Split(row[column], ",") {
			name, text, _ := strings.Cut(item, "=")
			if n, err := strconv.Atoi(text); err == nil && name == "gres/gpu" && n > 0 && n <= maxWorkers && info.Workers == 0 {
				info.Workers = n
			}
		}
	}
	if n, err := strconv.Atoi(row["NTasks"]); err == nil && tasks && n > 1 && n <= maxWorkers && info.Workers == 0 {
		info.Workers = n
	}
	if v, err := strconv.ParseFloat(row["ConsumedEnergyRaw"], 64); err == nil && v > info.EnergyJoules && v < 1e18 {
		info.EnergyJoules = v
	}
}

// sacctState is the status and, where the job did not complete, why.
func sacctState(state, exit string) (status, why string) {
	word, _, _ := strings.Cut(state, " ")
	switch word {
	case "COMPLETED":
		return runs.StatusDone, ""
	case "RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "":
		return runs.StatusRunning, ""
	case "CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE":
		status = runs.StatusCanceled
	default:
		status = runs.StatusFailed
	}
	why = "Slurm: " + state
	if exit != "" && exit != "0:0" {
		why += ", exit code " + exit
	}
	return status, why
}

// slurmSeconds reads [days-]hours:minutes:seconds[.fraction], or minutes:seconds.
func slurmSeconds(text string) (float64, bool) {
	days, rest, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, rest = "0", text
	}
	d, err := strconv.Atoi(days)
	if err != nil || d < 0 || d > 1<<20 {
		return 0, false
	}
	total := 0.0
	fields := strings.Split(rest, ":")
	if len(fields) < 2 || len(fields) > 3 {
		return 0, false
	}
	for _, f := range fields {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || !(v >= 0 && v < 1e9) {
			return 0, false
		}
		total = total*60 + v
	}
	return total + float64(d)*86400, true
}
