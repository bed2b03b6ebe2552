package programfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// benchyKind is the name of the format of benchy's JSON file
// (github.com/romerojosh/benchy).
const benchyKind = "benchy JSON"

// isBenchyJSON reports whether head begins a JSON object that contains keys of
// benchy.
func isBenchyJSON(_ string, head []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) && bytes.Contains(head, []byte(`"nranks"`)) &&
		(bytes.Contains(head, []byte(`"IO"`)) || bytes.Contains(head, []byte(`"SYNTHETIC"`)) || bytes.Contains(head, []byte(`"FULL"`)))
}

// maxDocumentBytes is the maximum length in bytes of a JSON document, which is
// read into memory.
const maxDocumentBytes = 256 << 20

// readBenchyJSON reads a file of the form {"nranks": N, "IO":
// {"trial_throughput": [...], …}, …}. The file does not contain the number of nodes, which its name
// may have.
func readBenchyJSON(_ context.Context, in *record.Input) ([]*record.Part, error) {
	text, err := in.ReadDocument(maxDocumentBytes)
	if err != nil {
		return nil, err
	}
	type trials struct {
		Throughput []float64 `json:"trial_throughput"`
	}
	var v struct {
		Ranks     int     `json:"nranks"`
		IO        *trials `json:"IO"`
		Synthetic *trials `json:"SYNTHETIC"`
		Full      *trials `json:"FULL"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		in.AddProblem(findErrorLine(text, err), "%v", err)
		return nil, nil
	}
	var run runs.Run
	if record.IsPlausibleCount(float64(v.Ranks)) {
		run.Info.Workers = v.Ranks
	}
	for _, c := range []struct {
		name string
		t    *trials
	}{{"IO", v.IO}, {"SYNTHETIC", v.Synthetic}, {"FULL", v.Full}} {
		if c.t == nil {
			continue
		}
		if len(c.t.Throughput) == 0 {
			in.AddProblem(0, "%s has no trial_throughput", c.name)
			continue
		}
		rate, spread := record.MeanAndSpread(c.t.Throughput)
		run.Trials = append(run.Trials, runs.Trial{Name: c.name, Rate: rate, Spread: spread, Rates: c.t.Throughput})
		in.Report.Records++
	}
	if len(run.Trials) == 0 {
		in.AddProblem(0, "no throughput of IO, SYNTHETIC or FULL")
		return nil, nil
	}
	part := &record.Part{Run: run, Role: record.Principal}
	if nodes, ok := names.OfPath(in.Path).ScaledNodes(); ok && int64(v.Ranks)%nodes.Number == 0 {
		part.Evidence = append(part.Evidence, nodes)
	}
	return []*record.Part{part}, nil
}

// findErrorLine returns the number of the line at which encoding/json found err.
func findErrorLine(text []byte, err error) int {
	offset := int64(len(text))
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	} else if errors.As(err, &kind) {
		offset = kind.Offset
	}
	return 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
}
