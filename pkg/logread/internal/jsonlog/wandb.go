package jsonlog

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// W&B writes four files about a run to the folder run-DATE-ID/files: the last value of each metric
// (wandb-summary.json), the machine and the command (wandb-metadata.json), the configuration
// (config.yaml, which package programfile reads) and the program's output (output.log, which
// package textlog reads). The values of the first two are added to the run of the folder.
// wandb-summary.json looks like this:
//
//	{"_step": 99, "_runtime": 123.4, "_timestamp": 1704110400.5, "_wandb": {"runtime": 124}, "loss": 0.25, "val_acc": 0.875}
const (
	summaryKind  = "W&B summary"
	metadataKind = "W&B metadata"
)

const maxWandbFileBytes = 16 << 20

// isJSONFileNamed returns a function that reports whether a file has the given name, apart from the
// extension of a compressed file, and begins with a JSON object.
func isJSONFileNamed(name string) func(path string, head []byte) bool {
	return func(path string, head []byte) bool {
		return filepath.Base(record.UncompressedName(path)) == name && bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{"))
	}
}

// readWandbSummary reads the last values of a run. Each becomes a curve of one point.
func readWandbSummary(_ context.Context, in *record.Input) ([]*record.Part, error) {
	v, ok, err := in.ReadObject(maxWandbFileBytes, "", nil)
	if !ok {
		return nil, err
	}
	p := &record.Part{Role: record.Companion}
	step := int64(0)
	if s := scan.JSONFloat(v["_step"]); s >= 0 && s < 1<<53 {
		step = int64(s)
	}
	var own struct {
		Runtime float64 `json:"runtime"`
	}
	if seconds := scan.JSONFloat(v["_runtime"]); seconds > 0 {
		p.Run.WallSeconds = seconds
	} else if json.Unmarshal(v["_wandb"], &own) == nil && own.Runtime > 0 {
		p.Run.WallSeconds = own.Runtime
	}
	if s := scan.JSONFloat(v["_timestamp"]); s > 0 && s < 1<<40 {
		p.Run.Info.Ended = time.UnixMilli(int64(1000 * s)).UTC()
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		x, ok := scan.ParseJSONFloat(v[name])
		if !ok || strings.HasPrefix(name, "_") || len(name) > 100 || len(p.Run.Curves) >= record.MaxCurveNames {
			continue
		}
		p.Run.Curves = append(p.Run.Curves, runs.Curve{Name: name, Rank: -1, Steps: []int64{step}, Values: []float64{x}})
	}
	in.Report.Records, in.Report.LinesUsed = int64(len(p.Run.Curves)), in.Report.Lines
	if len(p.Run.Curves) == 0 && p.Run.WallSeconds == 0 {
		in.AddProblem(0, "the summary has no numbers")
		return nil, nil
	}
	return []*record.Part{p}, nil
}

// readWandbMetadata reads the command and the start of a run. It ignores the number of GPUs, which
// is the machine's and not the workers'.
func readWandbMetadata(_ context.Context, in *record.Input) ([]*record.Part, error) {
	v, ok, err := in.ReadObject(maxWandbFileBytes, "", nil)
	if !ok {
		return nil, err
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(v[name], &s) // "" if it is missing or not a text
		return s
	}
	p := &record.Part{Role: record.Config}
	info := &p.Run.Info
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999"} {
		if t, err := time.Parse(layout, text("startedAt")); err == nil {
			info.Started = t.UTC()
			break
		}
	}
	info.Host.Name, info.Git = text("host"), text("commit")
	if program := text("program"); program != "" {
		var args []string
		_ = json.Unmarshal(v["args"], &args)
		info.Command = append([]string{"python", program}, args...)
		if name := launchline.ScriptName(info.Command); name != "" {
			p.AddTextEvidence(runs.PropertySeries, name, runs.SourceConfig, "wandb-metadata.json: program "+program)
		}
	}
	in.Report.Records, in.Report.LinesUsed = 1, in.Report.Lines
	return []*record.Part{p}, nil
}
