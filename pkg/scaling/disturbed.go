package scaling

import (
	"fmt"
	"strings"

	"lockstep/pkg/runs"
)

// disturbance says what disturbed a run in the epochs that the rule counts. It
// is empty if nothing did, or the run does not say.
func (s *Study) disturbance(r runs.Run) string {
	if len(r.Loads) == 0 {
		return ""
	}
	counts := s.counting(r)
	counted := map[int]bool{}
	for i, e := range r.Epochs {
		counted[e.Epoch] = counts(i)
	}
	load, ok := runs.SummarizeLoad(r.Loads, func(epoch int) bool { return counted[epoch] })
	if !ok || !load.Disturbed {
		return ""
	}
	return load.String()
}

// Disturbed says which of the runs that count were disturbed by other load on
// their machine, and by how much: "2 runs disturbed by other load: …". It is
// empty if none was.
func (s *Study) Disturbed() string {
	const most = 4 // are named
	n := len(s.disturbed)
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("%s disturbed by other load: %s", plural(n, "run"), strings.Join(s.disturbed[:min(n, most)], ", "))
	if n > most {
		text += fmt.Sprintf(" and %d more", n-most)
	}
	return text
}
