package programfile

import (
	"bytes"
	"context"
	"encoding/json"

	"lockstep/pkg/logread/internal/names"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// benchyKind is the name of the JSON format written by benchy (github.com/romerojosh/benchy).
const benchyKind = "benchy JSON"

func isBenchyJSON(_ string, head []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")) && bytes.Contains(head, []byte(`"nranks"`)) &&
		(bytes.Contains(head, []byte(`"IO"`)) || bytes.Contains(head, []byte(`"SYNTHETIC"`)) || bytes.Contains(head, []byte(`"FULL"`)))
}

const maxJSONFileBytes = 256 << 20

// readBenchyJSON reads {"nranks": N, "IO": {"trial_throughput": [...], …}, …}. The number of nodes
// is not in the file, but may be in its name.
func readBenchyJSON(_ context.Context, in *record.Input) ([]*record.Part, error) {
	members, ok, err := in.ReadObject(maxJSONFileBytes, "", nil)
	if !ok {
		return nil, err
	}
	in.Report.Lines = 0 // which nothing counts as used
	var run runs.Run
	if ranks := scan.JSONFloat(members["nranks"]); record.IsPlausibleCount(ranks) {
		run.Info.Workers = int(ranks)
	}
	for _, name := range []string{"IO", "SYNTHETIC", "FULL"} {
		var trials struct {
			Throughput []float64 `json:"trial_throughput"`
		}
		switch err := json.Unmarshal(members[name], &trials); {
		case members[name] == nil:
			continue
		case err != nil:
			in.AddProblem(0, "%s: %v", name, err)
			continue
		case len(trials.Throughput) == 0:
			in.AddProblem(0, "%s has no trial_throughput", name)
			continue
		}
		rate, spread := record.MeanAndStdDev(trials.Throughput)
		run.Trials = append(run.Trials, runs.Trial{Name: name, Rate: rate, Spread: spread, Rates: trials.Throughput})
		in.Report.Records++
	}
	if len(run.Trials) == 0 {
		in.AddProblem(0, "no throughput of IO, SYNTHETIC or FULL")
		return nil, nil
	}
	part := &record.Part{Run: run, Role: record.Principal}
	if nodes, ok := names.ParsePath(in.Path).ScaledNodes(); ok && int64(run.Info.Workers)%nodes.Number == 0 {
		part.Evidence = append(part.Evidence, nodes)
	}
	return []*record.Part{part}, nil
}
