package textlog

import (
	"bytes"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
)

// Slurm's seff summarizes a job. Like the accounting of sacct, its lines belong
// to the run whose log has the job's number.
//
//	Job ID: 1234
//	Array Job ID: 1230_4
//	Cluster: hpc
//	User/Group: ada/users
//	State: COMPLETED (exit code 0)
//	Nodes: 2
//	Cores per node: 16
//	CPU Utilized: 16:08:54
//	CPU Efficiency: 43.20% of 1-13:22:48 core-walltime
//	Job Wall-clock time: 01:02:03
//	Memory Utilized: 32.29 GB
//	Memory Efficiency: 50.45% of 64.00 GB

// seffKind is the kind of a run of which only the output of seff is known.
const seffKind = "seff"

// seffJob contains what was read of a job.
type seffJob struct {
	line    int // number of the block's first line; 0 if there is no block
	lines   int
	id      string
	state   string
	nodes   int
	seconds float64
	timed   bool // the line with the time was read
}

// seffState is what the lines of seff in a log contain.
type seffState struct {
	job  seffJob        // the job whose lines are being read
	jobs []*record.Part // the jobs before it
}

// Seff returns the format of what seff prints of a job.
func Seff() format {
	return format{name: seffKind, readInBlock: (*textLog).readSeffLine, lines: []lineRule{
		{prefix: "Job ID: ", read: (*textLog).readSeffJob},
		{prefix: "Job Wall-clock time: ", read: (*textLog).readSeffLine, endsWithValue: true},
	}}
}

// seffOf returns what the lines of seff in a log contain so far.
func seffOf(t *textLog) *seffState { return stateOf[seffState](&t.states, formatSeff) }

// readSeffJob reads the line "Job ID:", which may begin the description of a
// job. Whether its lines are used is only known when the block ends.
func (t *textLog) readSeffJob(m []byte) lineResult {
	id := m[len("Job ID: "):]
	if !isSlurmJob(id) {
		return unknown
	}
	t.finishSeff()
	seffOf(t).job = seffJob{line: t.l.Number, lines: 1, id: string(id)}
	t.block = formatSeff
	return pending
}

// isSlurmJob reports whether text is the number of a job, or of a task of an
// array of jobs, such as 1230_4.
func isSlurmJob(text []byte) bool {
	job, task, isTask := bytes.Cut(text, []byte("_"))
	digits := func(b []byte) bool { return len(b) > 0 && len(b) < 20 && len(bytes.Trim(b, "0123456789")) == 0 }
	return digits(job) && (!isTask || digits(task))
}

// readSeffLine reads another line about the job.
func (t *textLog) readSeffLine(m []byte) lineResult {
	job := &seffOf(t).job
	if job.line == 0 {
		return unknown
	}
	key, value, _ := bytes.Cut(m, []byte(": "))
	text := string(bytes.TrimSpace(value[:min(len(value), 200)]))
	switch string(key) {
	case "Array Job ID":
		if isSlurmJob([]byte(text)) {
			job.id = text
		}
	case "State":
		job.state = text
	case "Nodes":
		c := scan.Cursor{Rest: []byte(text)}
		if n := c.ReadInteger(); c.IsComplete() && n <= record.MaxWorkers {
			job.nodes = n
		}
	case "Job Wall-clock time":
		seconds, ok := record.ParseSlurmDuration(text)
		if !ok {
			t.in.AddProblem(t.l.Number, "seff: expected [days-]hours:minutes:seconds, got %.40q", text)
			return unused
		}
		job.seconds, job.timed = seconds, true
	case "Cluster", "User/Group", "Cores", "Cores per node", "CPU Utilized", "CPU Efficiency", "Memory Utilized", "Memory Efficiency":
	default:
		t.finishSeff()
		return unknown
	}
	job.lines++
	return pending
}

// finishSeff ends the description of a job. Without its time, the lines are not
// those of seff.
func (t *textLog) finishSeff() {
	seff := seffOf(t)
	s := seff.job
	if s.line == 0 {
		return
	}
	seff.job = seffJob{}
	if t.block == formatSeff {
		t.block = noBlock
	}
	if !s.timed {
		t.countUnknown(s.line, s.lines)
		return
	}
	t.in.Report.LinesUsed += int64(s.lines)
	t.in.Report.Records++
	state, exit, _ := strings.Cut(s.state, " (exit code ")
	if exit = strings.TrimSuffix(exit, ")"); exit == "0" {
		exit = ""
	}
	p := &record.Part{Role: record.Accounting, Line: s.line}
	p.Run.Dir, p.Run.Kind, p.Run.WallSeconds = t.in.Path+"#"+s.id, seffKind, s.seconds
	info := &p.Run.Info
	info.JobIDs = map[string]string{record.SlurmJobKey: s.id}
	info.Status, info.Error = record.SlurmStatus(state, exit)
	info.Nodes = s.nodes
	seff.jobs = append(seff.jobs, p)
}

// addSeffJobs appends the jobs that seff describes to the parts of the file. If
// there is only one, the runs of the file belong to it.
func (t *textLog) addSeffJobs(parts []*record.Part) []*record.Part {
	t.finishSeff()
	jobs := seffOf(t).jobs
	if len(jobs) == 1 {
		for _, p := range parts {
			if p.Run.Info.JobIDs == nil {
				p.Run.Info.JobIDs = map[string]string{}
			}
			p.Run.Info.JobIDs[record.SlurmJobKey] = jobs[0].Run.Info.JobIDs[record.SlurmJobKey]
		}
	}
	return append(parts, jobs...)
}
