package verify

import (
	"fmt"

	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// checkConfigs checks that all ranks recorded the hash of the config in run.json, and the
// same hash of the data.
func (v *verifier) checkConfigs() error {
	const name = "all ranks trained with the config of run.json on the same data"
	var recorded []runs.Worker
	for _, w := range v.run.Workers {
		if w.ConfigHash != "" {
			recorded = append(recorded, w)
		}
	}
	if len(recorded) == 0 {
		v.addClaimCheck(name, true, "not recorded")
		return nil
	}
	want, err := train.ConfigHash(v.run.Info.Config)
	if err != nil {
		return err
	}
	detail := ""
	for _, w := range v.run.Workers {
		switch {
		case w.ConfigHash == "":
			detail = fmt.Sprintf("rank %d did not record its config", w.Rank)
		case w.ConfigHash != want:
			detail = fmt.Sprintf("rank %d trained with another config (SHA-256 %.12s…, want %.12s…)", w.Rank, w.ConfigHash, want)
		case w.DataHash != recorded[0].DataHash:
			detail = fmt.Sprintf("rank %d trained on other data than rank %d", w.Rank, recorded[0].Rank)
		}
		if detail != "" {
			v.addClaimCheck(name, false, "%s", detail)
			return nil
		}
	}
	v.addClaimCheck(name, true, "%d ranks, SHA-256 %.12s…", len(recorded), want)
	return nil
}
