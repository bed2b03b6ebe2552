package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataChanges: the start lines of the ranks show where the data of a run changed.
func TestDataChanges(t *testing.T) {
	start := func(hash string, accepted ...string) string {
		return fmt.Sprintf(`{"rank":RANK,"world_size":2,"data_hash":%q,"accepted_changed_data":%v}`+"\n", hash, len(accepted) > 0)
	}
	for _, tt := range []struct {
		name         string
		rank0, rank1 string // contents of the steps files
		want         string // the changes, such as "a-b accepted"
		last         string // the last known fingerprint
	}{
		{"one", start("v1:a"), start("v1:a"), "", "v1:a"},
		{"resumed", start("v1:a") + start("v1:a"), start("v1:a") + start("v1:a"), "", "v1:a"},
		{"changed", start("v1:a") + start("v1:b"), start("v1:a") + start("v1:b"), "v1:a-v1:b", "v1:b"},
		{"accepted", start("v1:a") + start("v1:b", "x"), start("v1:a") + start("v1:b", "x"), "v1:a-v1:b accepted", "v1:b"},
		{"accepted and changed back", start("v1:a") + start("v1:b", "x") + start("v1:a"), "", "v1:a-v1:b accepted, v1:b-v1:a", "v1:a"},
		{"accepted by one rank", start("v1:a") + start("v1:b", "x"), start("v1:a"), "v1:b-v1:a, v1:a-v1:b accepted", "v1:b"},
		{"ranks", start("v1:a"), start("v1:b"), "v1:a-v1:b", "v1:a"},
		{"ranks that became equal", start("v1:a") + start("v1:c", "x"), start("v1:b") + start("v1:c", "x"), "v1:a-v1:b, v1:a-v1:c accepted, v1:b-v1:c accepted", "v1:c"},
		{"sampled", start("v1:a") + start("v1-sampled:a"), "", "v1:a-v1-sampled:a", "v1-sampled:a"},
		{"none", start(""), start(""), "", ""},
		{"none in between", start("v1:a") + start("") + start("v1:b"), "", "v1:a-v1:b", "v1:b"},
		{"only of rank 1", start(""), start("v1:a"), "", "v1:a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			check(t, os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"schema":1,"workers":2}`), 0o644))
			for rank, text := range []string{tt.rank0, tt.rank1} {
				check(t, os.WriteFile(stepsPath(dir, rank), []byte(strings.ReplaceAll(text, "RANK", fmt.Sprint(rank))), 0o644))
			}
			run, err := Read(dir)
			check(t, err)
			var got []string
			for _, c := range run.DataChanges() {
				text := c.Before.DataHash + "-" + c.After.DataHash
				if c.Accepted {
					text += " accepted"
				}
				got = append(got, text)
			}
			equal(t, strings.Join(got, ", "), tt.want)
			last, ok := run.LastData()
			equal(t, last.DataHash, tt.last)
			equal(t, ok, tt.last != "")
		})
	}
}

func TestDescribeData(t *testing.T) {
	const hash = "v1:0123456789abcdef"
	for want, w := range map[string]Worker{
		"v1:0123456789ab": {DataHash: hash},
		"v1:0123456789ab (20 training samples and 2 held-out in 44 files of 1234 bytes, /a and /b)": {
			DataHash: hash, Data: Data{Path: "/a", TestPath: "/b", TrainingSamples: 20, HeldOutSamples: 2, Files: 44, Bytes: 1234},
		},
		"v1:0123456789ab (20 training samples and 2 held-out, generated)":           {DataHash: hash, Data: Data{TrainingSamples: 20, HeldOutSamples: 2}},
		"v1:0123456789ab (20 training samples and 2 held-out, made by the program)": {DataHash: hash, Data: Data{TrainingSamples: 20, HeldOutSamples: 2, Bytes: 7}},
	} {
		equal(t, w.DescribeData(), want)
	}
}
