package verify

import (
	"fmt"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// checkConfigs checks that all ranks recorded the hash of the config in run.json.
func (v *verifier) checkConfigs() error {
	const name = "all ranks trained with the config of run.json"
	recorded := 0
	for _, w := range v.run.Workers {
		if w.ConfigHash != "" {
			recorded++
		}
	}
	if recorded == 0 {
		v.addBoolCheck(name, true, "not recorded")
		return nil
	}
	want, err := train.ConfigHash(v.run.Info.Config)
	if err != nil {
		return err
	}
	for _, w := range v.run.Workers {
		switch w.ConfigHash {
		case want:
		case "":
			v.addBoolCheck(name, false, "rank %d did not record its config", w.Rank)
			return nil
		default:
			v.addBoolCheck(name, false, "rank %d trained with another config (SHA-256 %.12s…, want %.12s…)", w.Rank, w.ConfigHash, want)
			return nil
		}
	}
	v.addBoolCheck(name, true, "%d ranks, SHA-256 %.12s…", recorded, want)
	return nil
}

// checkDataUnchanged checks that all ranks trained on the same data, also after a resume, unless the user
// has accepted other data.
func (v *verifier) checkDataUnchanged() {
	const name = "all ranks trained on the same data, from the start to the end"
	last, known := v.run.LastData()
	if !known {
		v.addBoolCheck(name, true, "not recorded")
		return
	}
	for _, w := range v.run.Workers {
		if w.DataHash == "" {
			v.addBoolCheck(name, false, "rank %d did not record its data", w.Rank)
			return
		}
	}
	changes := v.run.DataChanges()
	if len(changes) == 0 {
		v.addBoolCheck(name, true, "%s", last.DescribeData())
		return
	}
	ok := true
	var details []string
	for _, c := range changes {
		ok = ok && c.Accepted
		details = append(details, describeDataChange(c))
	}
	v.addBoolCheck(name, ok, "%s", strings.Join(details, "; "))
}

func describeDataChange(c runs.DataChange) string {
	before, after := c.Before.DescribeData(), c.After.DescribeData()
	switch {
	case c.Before.Rank != c.After.Rank:
		return fmt.Sprintf("rank %d trained on other data than rank %d: %s, not %s", c.After.Rank, c.Before.Rank, after, before)
	case c.Accepted:
		return fmt.Sprintf("the data changed when the run was resumed after step %d, which was accepted with --accept-changed-data: from %s to %s", c.After.FromStep, before, after)
	}
	return fmt.Sprintf("the data changed when the run was resumed after step %d, and nobody accepted it: from %s to %s", c.After.FromStep, before, after)
}
