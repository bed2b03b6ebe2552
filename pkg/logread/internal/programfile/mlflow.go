package programfile

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// In MLflow's file store, the name of a file is the name of the value in it:
//
//	mlruns/<experiment>/<run>/metrics/train/loss    1700000000000 0.8741154670715332 49
//	mlruns/<experiment>/<run>/params/n_gpus         4
//	mlruns/<experiment>/<run>/tags/mlflow.runName   sunny-1
//
// A line of a metric contains a time in milliseconds since 1970, a value, and a step, which old
// versions omit. The name of a run's folder is 32 hexadecimal digits. Params and tags become
// settings of the run.
const (
	mlflowMetricKind  = "MLflow metrics"
	mlflowSettingKind = "MLflow settings"
)

// maxMLflowSettingBytes is the maximum size in bytes of a file that contains a parameter or a tag.
const maxMLflowSettingBytes = 16 << 20

type mlflowLocation struct {
	run        string // path of the run's folder
	part       string // metrics, params or tags
	name       string // of the value, with slashes
	experiment string
}

// parseMLflowPath splits the path of a file in the file store into its parts. ok is false if path
// does not belong to a file store.
func parseMLflowPath(path string) (p mlflowLocation, ok bool) {
	names := strings.Split(filepath.ToSlash(record.UncompressedName(path)), "/")
	for i := len(names) - 3; i >= 0; i-- {
		if len(names[i]) != 32 || strings.Trim(names[i], "0123456789abcdef") != "" {
			continue
		}
		p = mlflowLocation{
			run: filepath.FromSlash(strings.Join(names[:i+1], "/")), part: names[i+1], name: strings.Join(names[i+2:], "/"),
		}
		if i > 0 {
			p.experiment = names[i-1]
		}
		return p, p.part == "metrics" || p.part == "params" || p.part == "tags"
	}
	return p, false
}

func isMLflowMetric(path string, head []byte) bool {
	p, ok := parseMLflowPath(path)
	line, _, _ := bytes.Cut(head, []byte("\n"))
	_, _, _, good := parseMLflowLine(line)
	return ok && p.part == "metrics" && good
}

// parseMLflowLine parses a line of a metric. At most three words may follow the step.
func parseMLflowLine(line []byte) (milliseconds, value, step float64, ok bool) {
	c := scan.Cursor{Rest: line}
	milliseconds = c.SkipBlanks().ReadFloat()
	isSeparated := len(scan.SkipBlanks(c.Rest)) < len(c.Rest)
	value = c.SkipBlanks().ReadFloat()
	if c.SkipBlanks(); len(c.Rest) > 0 {
		step = c.ReadFloat()
	}
	isCount := milliseconds >= 0 && milliseconds == math.Trunc(milliseconds) && step == math.Trunc(step) && math.Abs(step) < 1<<53
	return milliseconds, value, step, isCount && isSeparated && !c.Failed && (len(c.Rest) == 0 || len(bytes.Fields(c.Rest)) <= 3)
}

func readMLflowMetric(_ context.Context, in *record.Input) ([]*record.Part, error) {
	place, ok := parseMLflowPath(in.Path)
	if !ok {
		return nil, record.ErrUnknownFormat
	}
	curve := record.NewCurve(place.name, -1, true)
	err := in.ReadLines(func(l *scan.LineReader, line []byte) {
		milliseconds, value, step, good := parseMLflowLine(line)
		switch {
		case !l.Ended:
			in.AddProblem(l.Number, "last line is torn: %.80q", line)
		case !good:
			in.AddProblem(l.Number, "expected a time in milliseconds, a value and a step, got %.80q", line)
		default:
			curve.AddPoint(int64(step), value, milliseconds/1e3)
			in.Report.LinesUsed++
			in.Report.Records++
		}
	})
	if err != nil {
		return nil, err
	}
	if curve.Points == 0 {
		return nil, nil
	}
	part := &record.Part{Role: record.Companion, Run: runs.Run{
		Dir: place.run, File: filepath.Join(place.run, "metrics"), Curves: []runs.Curve{curve.Finish(in.Report)},
	}}
	if place.experiment != "" { // the name of the run's folder is different for each run
		part.AddTextEvidence(runs.PropertySeries, "experiment "+place.experiment, runs.SourceFolderName, place.experiment)
	}
	return []*record.Part{part}, nil
}

func isMLflowSetting(path string, head []byte) bool {
	p, ok := parseMLflowPath(path)
	return ok && p.part != "metrics" && bytes.IndexByte(head, 0) < 0
}

// readMLflowSetting reads a parameter or a tag. The setting of a tag is named tags/NAME.
func readMLflowSetting(_ context.Context, in *record.Input) ([]*record.Part, error) {
	place, ok := parseMLflowPath(in.Path)
	if !ok {
		return nil, record.ErrUnknownFormat
	}
	text, err := in.ReadDocument(maxMLflowSettingBytes)
	if err != nil {
		return nil, err
	}
	in.Report.Lines = int64(bytes.Count(text, []byte("\n")) + 1)
	value := strings.ToValidUTF8(string(bytes.TrimSpace(text)), "\ufffd")
	if len(value) > 1000 {
		in.Report.AddIgnored(1, "a text of more than 1000 bytes")
		return nil, nil
	}
	name := place.name
	if place.part == "tags" {
		name = "tags/" + name
	}
	var v any = value
	if number, good := scan.ParseFloat([]byte(value)); good && place.part == "params" {
		v = number
	}
	in.Report.LinesUsed, in.Report.Records = in.Report.Lines, 1
	return []*record.Part{{Role: record.Config, Run: runs.Run{
		File: filepath.Join(place.run, place.part), Info: runs.Info{Config: map[string]any{name: v}},
	}}}, nil
}
