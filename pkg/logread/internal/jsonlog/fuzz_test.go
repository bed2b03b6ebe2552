package jsonlog

import (
	"testing"

	"lockstep/pkg/logread/internal/recordtest"
)

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("{\"env_info\": \"x\", \"seed\": 5, \"exp_name\": \"a/b.py\"}\n{\"mode\": \"train\", \"epoch\": 1, \"iter\": 50, \"loss\": 2.5}\n{\"mode\": \"val\", \"epoch\": 1, \"iter\": 2, \"loss\": 2.5, \"mIoU\": 50}\n{\"mode\": \"train\", \"epoch\": 2, \"iter\": 50, \"loss\": 2.5}\n"))
	f.Add([]byte("{\"epoch\": 1, \"iter\": 50, \"step\": 50, \"loss\": 2.5}\n{\"acc\": 75, \"step\": 1}\n{\"epoch\": 0, \"loss\": 1}\n{\"epoch\": 0, \"loss\": 2, \"epoch_time\": -1}"))
	f.Add([]byte("{\"iteration\": 39, \"total_loss\": 2.5}\n\n{\"iteration\": 19, \"total_loss\": NaN}\n{\"iteration\": 19, \"a"))
	f.Add([]byte("{\"epoch\":1,\"loss\":2.5}\n{\"epoch\": 2 , \"loss\":  \"1.5\"}\n{\"mode\":,\"epoch\":1}\n{\"epoch\":3,\"loss\":}\n{\"epoch\":3,\"loss\":1{\"epoch\":4}\n"))
	for _, format := range Formats() {
		if format.Name == linesKind {
			f.Fuzz(func(t *testing.T, text []byte) {
				recordtest.ReadAndCheckFormat(t, format, "vis_data/scalars.json", text)
			})
		}
	}
}

func FuzzReadSummary(f *testing.F) {
	f.Add([]byte(`{"_step": 99, "_runtime": 123.4, "_timestamp": 1704110400.5, "_wandb": {"runtime": 124}, "loss": NaN}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, Formats()[0], "files/wandb-summary.json", text)
	})
}
