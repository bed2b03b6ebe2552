package table

import (
	"testing"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/recordtest"
)

func FuzzReadStudy(f *testing.F) {
	f.Add([]byte(",time_per_epoch,loss,lr,training_time,test_time,iou\n0,205.381887,0.561627,0.001000,38765.412019,29.629347,0.899849\n1,189.552807,0.365322,0.001000,38765.412019,29.629347,0.899849\n"))
	f.Add([]byte("\"\"\n"))
	f.Add([]byte("\"\"\nme_per_epoch,loss,lr,training_time,test_time,iou\n0,1.0,,,,,\n"))
	f.Add([]byte(",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks\n0,0.5,0.8,0.6,0.7,0.001,100.0,1e300\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, studyKind), "log_2.csv", text)
	})
}

func FuzzReadBenchyJSON(f *testing.F) {
	recordtest.AddSeeds(f, "sc21/trials/benchy.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, benchyKind), "benchy.json", text)
	})
}

func FuzzReadLightning(f *testing.F) {
	recordtest.AddSeeds(f, "lightning/version_0/metrics.csv")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, tableKind), "metrics.csv", text)
	})
}

func FuzzReadConfiguration(f *testing.F) {
	recordtest.AddSeeds(f, "lightning/version_0/hparams.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, hparamsKind), "hparams.yaml", text)
	})
}

func FuzzReadHuggingFace(f *testing.F) {
	recordtest.AddSeeds(f, "hf/trainer_state.json", "hf/checkpoint-100/trainer_state.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, huggingFaceKind), "trainer_state.json", text)
	})
}

func FuzzReadSacct(f *testing.F) {
	recordtest.AddSeeds(f, "slurm/accounting.txt")
	f.Add([]byte("JobID|State|Elapsed\n42_1|FAILED|00:02:00\n42_[2-9]|PENDING|00:00:00\n43|PENDING|00:00:00\n43|COMPLETED|00:01:00\n43|PENDING|00:00:00\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, sacctKind), "sacct.txt", text)
	})
}

func FuzzReadPlain(f *testing.F) {
	recordtest.AddSeeds(f, "loss/4gpu/main.log")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.CheckFormat(t, tableFormat(t, PlainKind), "main.log", text)
	})
}

func FuzzReadTable(f *testing.F) {
	f.Add([]byte("# Typed in by hand.\nseries,workers,seed,epoch,seconds,samples,iou,training_seconds,wall_seconds,nodes,batch_per_worker\n\n\"one, quoted\",1,7,2,10,100,,30,,,\n\"one, quoted\",2,7,3,5,100,0.4,,40.5,2,16\n"))
	f.Add([]byte("workers,seconds\n1,1e400\n-1,NaN\n9,inf\n"))
	f.Add([]byte("workers,samples,seconds,trial\n3,1e18,0,\n\"3\",,,IO\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parts, _ := recordtest.CheckFormat(t, tableFormat(t, tableKind), "typed.csv", text)
		for _, p := range parts {
			if p.Run.Kind == "" {
				t.Errorf("run without a kind: %+v", p.Run.Info)
			}
		}
	})
}

// tableFormat returns the format with a name.
func tableFormat(t testing.TB, name string) record.Format {
	t.Helper()
	for _, f := range Formats(nil) {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("unknown format %q", name)
	return record.Format{}
}
