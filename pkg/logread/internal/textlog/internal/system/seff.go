package system

import (
	"bytes"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/logread/internal/textlog/internal/logline"
)

// Slurm's seff summarizes a job. Its lines belong to the run whose log has the job's number.
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

type seffJob struct {
	line    int // number of the block's first line; 0 if there is no block
	lines   int
	id      string
	state   string
	nodes   int
	seconds float64
	timed   bool // the line with the time was read
}

type seffState struct {
	job  seffJob        // the job whose lines are being read
	jobs []*record.Part // the jobs before it
}

// Seff returns the format of the job statistics that seff prints.
func Seff() logline.Format {
	return logline.Format{Name: seffKind, ReadInBlock: readSeffLine, Rules: []logline.Rule{
		{Prefix: "Job ID: ", Read: readSeffJob},
		{Prefix: "Job Wall-clock time: ", Read: readSeffLine, EndsWithValue: true},
	}}
}

func seffStateOf(log *logline.Log) *seffState {
	return logline.FormatState[seffState](&log.States, logline.Seff)
}

// readSeffJob reads "Job ID:", which may begin the description of a job. Only the end of the block
// shows whether its lines are used.
func readSeffJob(log *logline.Log, m []byte) logline.Result {
	id := m[len("Job ID: "):]
	if !isSlurmJob(id) {
		return logline.Unknown
	}
	FinishSeff(log)
	seffStateOf(log).job = seffJob{line: log.Lines.Number, lines: 1, id: string(id)}
	log.Block = logline.Seff
	return logline.Pending
}

// isSlurmJob reports whether text is the number of a job, or of a task of a job array, such as 1230_4.
func isSlurmJob(text []byte) bool {
	job, task, isTask := bytes.Cut(text, []byte("_"))
	digits := func(b []byte) bool { return len(b) > 0 && len(b) < 20 && len(bytes.Trim(b, "0123456789")) == 0 }
	return digits(job) && (!isTask || digits(task))
}

func readSeffLine(log *logline.Log, m []byte) logline.Result {
	job := &seffStateOf(log).job
	if job.line == 0 {
		return logline.Unknown
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
			return log.Refuse("seff: expected [days-]hours:minutes:seconds, got %.40q", text)
		}
		job.seconds, job.timed = seconds, true
	case "Cluster", "User/Group", "Cores", "Cores per node", "CPU Utilized", "CPU Efficiency", "Memory Utilized", "Memory Efficiency":
	default:
		FinishSeff(log)
		return logline.Unknown
	}
	job.lines++
	return logline.Pending
}

// FinishSeff ends the statistics of a job. If they do not contain the job's time, seff did not
// print these lines.
func FinishSeff(log *logline.Log) {
	seff := seffStateOf(log)
	s := seff.job
	if s.line == 0 {
		return
	}
	seff.job = seffJob{}
	if log.Block == logline.Seff {
		log.Block = logline.NoBlock
	}
	if !s.timed {
		log.In.Report.AddIgnoredLines(record.IgnoredLines{Reason: logline.ReasonUnknownLine, Lines: int64(s.lines), First: s.line})
		return
	}
	log.In.Report.LinesUsed += int64(s.lines)
	log.In.Report.Records++
	state, exit, _ := strings.Cut(s.state, " (exit code ")
	if exit = strings.TrimSuffix(exit, ")"); exit == "0" {
		exit = ""
	}
	p := &record.Part{Role: record.Accounting, Line: s.line}
	p.Run.Dir, p.Run.Kind, p.Run.WallSeconds = log.In.Path+"#"+s.id, seffKind, s.seconds
	info := &p.Run.Info
	info.JobIDs = map[string]string{record.SlurmJobKey: s.id}
	info.Status, info.Error = record.SlurmStatus(state, exit)
	info.Nodes = s.nodes
	seff.jobs = append(seff.jobs, p)
}

// SeffJobs returns the jobs whose statistics seff printed in a log. If there is only one job, the
// runs of the log belong to it.
func SeffJobs(log *logline.Log, parts []*record.Part) []*record.Part {
	FinishSeff(log)
	jobs := seffStateOf(log).jobs
	if len(jobs) == 1 {
		for _, p := range parts {
			record.PutInMap(&p.Run.Info.JobIDs, record.SlurmJobKey, jobs[0].Run.Info.JobIDs[record.SlurmJobKey])
		}
	}
	return jobs
}
