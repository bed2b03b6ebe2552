package table

import (
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/fields"
)

// The kinds of tables that are recognized by their headers.
const (
	tableKind        = "CSV table"
	lightningKind    = "Lightning metrics"
	resultsTableKind = "results table"
	ultralyticsKind  = "Ultralytics results"
	wandbKind        = "W&B export"
	mlflowTableKind  = "MLflow export"
	nvidiaKind       = "nvidia-smi"
	joblogKind       = "GNU parallel joblog"
	tensorBoardKind  = "TensorBoard export"
)

func detectKind(header []string) string {
	has := func(names ...string) bool {
		for _, name := range names {
			if !slices.Contains(header, name) {
				return false
			}
		}
		return true
	}
	begins := func(prefixes ...string) bool {
		return slices.ContainsFunc(header, func(name string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		})
	}
	switch {
	case has("epoch", "step") && len(header) > 2:
		return lightningKind
	case has("Seq", "JobRuntime", "Command"):
		return joblogKind
	case begins("utilization.gpu", "power.draw", "memory.used", "temperature.gpu", "clocks.", "memory.total", "pci.bus_id"):
		return nvidiaKind
	case has("Wall time", "Step", "Value"):
		return tensorBoardKind
	case has("epoch") && (begins("train/box_loss", "metrics/mAP", "metrics/accuracy_top1", "x/lr") || has("train/loss") && begins("lr/pg")):
		return ultralyticsKind
	case has("_step", "_timestamp"), has("_step", "_runtime"), has("Name", "State"), isPanelExport(header):
		return wandbKind
	case has("run_id", "key", "value"), has("run_id", "experiment_id"), has("Run ID", "Start Time"):
		return mlflowTableKind
	}
	return tableKind
}

// isPanelExport reports whether the columns after the first are values of different runs, as
// in the data of a panel of W&B: "Step","run - loss","run - loss__MIN","run - loss__MAX".
func isPanelExport(header []string) bool {
	if len(header) < 2 || !slices.Contains([]string{"Step", "epoch", "Relative Time (Process)", "Relative Time (Wall)", "_timestamp", "_step", "trainer/global_step", "global_step"}, header[0]) {
		return false
	}
	for _, name := range header[1:] {
		if !strings.Contains(name, " - ") {
			return false
		}
	}
	return true
}

// splitRuns splits the names of the columns of a panel's data into the run and the metric.
func (s *schema) splitRuns() {
	if !isPanelExport(s.header) {
		return
	}
	for i := 1; i < len(s.columns); i++ {
		c := &s.columns[i]
		if c.mapped {
			continue
		}
		at := strings.LastIndex(c.name, " - ")
		run, metric := c.name[:at], c.name[at+3:]
		c.run = run
		for _, end := range []string{"__MIN", "__MAX"} {
			if strings.HasSuffix(metric, end) {
				c.unused = "the minimum or maximum of another column"
			}
		}
		c.name, c.field, c.kind = metric, "", fields.Number
	}
}
