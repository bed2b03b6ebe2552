package programfile

import (
	"testing"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
)

func FuzzReadStudy(f *testing.F) {
	f.Add([]byte(",time_per_epoch,loss,lr,training_time,test_time,iou\n0,205.381887,0.561627,0.001000,38765.412019,29.629347,0.899849\n1,189.552807,0.365322,0.001000,38765.412019,29.629347,0.899849\n"))
	f.Add([]byte("\"\"\n"))
	f.Add([]byte("\"\"\nme_per_epoch,loss,lr,training_time,test_time,iou\n0,1.0,,,,,\n"))
	f.Add([]byte(",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks\n0,0.5,0.8,0.6,0.7,0.001,100.0,1e300\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, studyKind), "log_2.csv", text)
	})
}

func FuzzReadRows(f *testing.F) {
	f.Add([]byte("a,s,4,7,,1,,seconds,0.5\na,s,4,7,,1,,samples,10\n\"b, \"\"c\"\"\nd\",,2,1,0,,3,loss,NaN\n\"b, \"\"c\"\"\nd\",,2,1,,,1,IO_trial_samples_per_second,inf\n"))
	f.Add([]byte("a,s,4,7,,1,x,seconds,0.5\na,s,4,7,,,,test_iou,'+1\na,s,,-3,1,,2,compute_start_seconds/x,1\na,\"s,4,7,,,,x,1"))
	f.Fuzz(func(t *testing.T, rows []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, tidyCSVKind), "rows.csv", append([]byte(wholefile.ValuesCSVHeader), rows...))
	})
}

func FuzzReadBenchyJSON(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "sc21/trials/benchy.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, benchyKind), "benchy.json", text)
	})
}

func FuzzReadConfiguration(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "lightning/version_0/hparams.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, hparamsKind), "hparams.yaml", text)
	})
}

func FuzzReadHuggingFace(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "hf/trainer_state.json", "hf/checkpoint-100/trainer_state.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, huggingFaceKind), "trainer_state.json", text)
	})
}

func FuzzReadSacct(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "slurm/accounting.txt")
	f.Add([]byte("JobID|State|Elapsed\n42_1|FAILED|00:02:00\n42_[2-9]|PENDING|00:00:00\n43|PENDING|00:00:00\n43|COMPLETED|00:01:00\n43|PENDING|00:00:00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, sacctKind), "sacct.txt", text)
	})
}

func FuzzReadPlain(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "loss/4gpu/main.log")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, formatNamed(t, PlainKind), "main.log", text)
	})
}

func FuzzReadMLflow(f *testing.F) {
	const run = "mlruns/0/0123456789abcdef0123456789abcdef/"
	f.Add(run+"metrics/loss", []byte("1700000000000 0.5 0\n1700000001500 nan 10\n17"))
	f.Add(run+"params/n_gpus", []byte("4"))
	f.Fuzz(func(t *testing.T, path string, text []byte) {
		for _, name := range []string{mlflowMetricKind, mlflowSettingKind} {
			format := formatNamed(t, name)
			if format.Recognizes(path, text) {
				recordtest.ReadAndCheckFormat(t, format, path, text)
			}
		}
	})
}

// formatNamed returns the format with a name.
func formatNamed(t testing.TB, name string) record.Format {
	t.Helper()
	for _, f := range Formats() {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("unknown format %q", name)
	return record.Format{}
}
