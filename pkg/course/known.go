package course

import (
	"context"
	"sync"

	"lockstep/pkg/runs"
)

// knownEpochTimes maps the epochTimesKey of each shipped run to its source, a published table or a
// recorded sweep. So a copy of the run is recognized even if its run.json names no source.
var knownEpochTimes = sync.OnceValue(func() map[string]string {
	known := map[string]string{}
	for _, name := range runs.ShippedLogs() {
		all, err := readRuns(context.Background(), []string{name})
		if err != nil {
			continue // a folder for the copies cannot be written
		}
		for _, r := range all {
			if len(r.Epochs) >= 2 { // one time may be equal by chance
				known[epochTimesKey(r)] = "it has the times of " + name
			}
		}
	}
	return known
})
