package programfile

import (
	"bytes"
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// sacctKind is the format of Slurm's accounting as sacct -P (--parsable2) prints it: a
// header, and one row per job and per step of a job (.batch, .extern, .0).
//
//	JobID|JobName|Partition|State|ExitCode|Elapsed
//	1234|unet|gpu|COMPLETED|0:0|05:42:11
//	1234.batch|batch||COMPLETED|0:0|05:42:11
const sacctKind = "sacct"

func isSacct(_ string, head []byte) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	return bytes.HasPrefix(first, []byte("JobID|")) || bytes.HasPrefix(first, []byte("JobIDRaw|")) || bytes.Contains(first, []byte("|JobID|"))
}

func readSacct(_ context.Context, in *record.Input) ([]*record.Part, error) {
	var columns []string
	var parts []*record.Part
	byID := map[string]*record.Part{}
	err := in.ReadLines(func(l *scan.LineReader, line []byte) {
		cells := strings.Split(string(line), "|")
		switch n := len(columns); {
		case n == 0:
			columns = cells
			in.Report.LinesUsed++
		case len(cells) == n || len(cells) == n+1 && cells[n] == "": // sacct -p ends each row with a bar
			row := map[string]string{}
			for i, c := range columns {
				row[c] = cells[i]
			}
			parts = addSacctRow(in, l.Number, row, parts, byID)
		default:
			in.AddProblem(l.Number, "expected %d cells, got %d: %.80q", n, len(cells), line)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 && len(in.Report.Unused) == 0 {
		in.AddProblem(0, "the file contains no job that has begun")
	}
	in.Report.Records = int64(len(parts))
	return parts, nil
}

// addSacctRow adds a row to parts and returns them. A job's row becomes a new part; a step's row is
// added to the part of its job.
func addSacctRow(in *record.Input, line int, row map[string]string, parts []*record.Part, byID map[string]*record.Part) []*record.Part {
	id := cmp.Or(row["JobID"], row["JobIDRaw"])
	job, step, isStep := strings.Cut(id, ".")
	if p := byID[job]; isStep {
		if p == nil || step == "extern" {
			in.Report.AddIgnored(line, "a step of a job (.batch, .extern)")
			return parts
		}
		in.Report.LinesUsed++
		setSacctNumbers(in, line, row, &p.Run, step != "batch")
		return parts
	}
	if job == "" || strings.Trim(job[:1], "0123456789") != "" {
		in.AddProblem(line, "expected a job's number, got %.40q", id)
		return parts
	}
	if strings.Contains(job, "_[") || row["State"] == "PENDING" && byID[job] == nil {
		in.Report.AddIgnored(line, "jobs and tasks that have not begun")
		return parts
	}
	if byID[job] != nil {
		in.AddProblem(line, "duplicate job %s (it was requeued); the later row counts", job)
		byID[job].Run = runs.Run{Dir: byID[job].Run.Dir}
	} else {
		byID[job] = &record.Part{Role: record.Accounting, Line: line}
		byID[job].Run.Dir = in.Path + "#" + job
		parts = append(parts, byID[job])
	}
	in.Report.LinesUsed++
	p := byID[job]
	p.Run.Info.JobIDs = map[string]string{record.SlurmJobKey: job}
	p.Run.Info.Series = row["JobName"]
	p.Run.Info.Status, p.Run.Info.Error = record.SlurmStatus(row["State"], row["ExitCode"])
	for column, at := range map[string]*time.Time{"Start": &p.Run.Info.Started, "End": &p.Run.Info.Ended} {
		if t, err := time.Parse("2006-01-02T15:04:05", row[column]); err == nil {
			*at = t
		}
	}
	setSacctNumbers(in, line, row, &p.Run, true)
	return parts
}

// setSacctNumbers sets the run's elapsed time, nodes, workers and energy from a row. If tasks is
// set, the number of tasks is used as the number of workers.
func setSacctNumbers(in *record.Input, line int, row map[string]string, run *runs.Run, tasks bool) {
	if text, ok := row["Elapsed"]; ok && run.WallSeconds == 0 {
		v, ok := record.ParseSlurmDuration(text)
		if !ok {
			in.AddProblem(line, "column Elapsed: expected [days-]hours:minutes:seconds, got %.40q", text)
		}
		run.WallSeconds = v
	}
	info := &run.Info
	if n, err := strconv.Atoi(row["NNodes"]); err == nil && n > 0 && n <= record.MaxWorkers {
		info.Nodes = max(info.Nodes, n)
	}
	for _, column := range []string{"AllocTRES", "AllocGRES", "ReqTRES"} {
		for _, item := range strings.Split(row[column], ",") {
			name, text, _ := strings.Cut(item, "=")
			if n, err := strconv.Atoi(text); err == nil && name == "gres/gpu" && n > 0 && n <= record.MaxWorkers && info.Workers == 0 {
				info.Workers = n
			}
		}
	}
	if n, err := strconv.Atoi(row["NTasks"]); err == nil && tasks && n > 1 && n <= record.MaxWorkers && info.Workers == 0 {
		info.Workers = n
	}
	if v, err := strconv.ParseFloat(row["ConsumedEnergyRaw"], 64); err == nil && v > info.EnergyJoules && v < 1e18 {
		info.EnergyJoules = v
	}
}
