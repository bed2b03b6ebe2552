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
	for _, text := range []string{
		"epoch;loss;time\r\n1;0,607;1.234,5\r\n2;0,5;999\r\n", "sep=;\nepoch;loss\n1;0.5\n", "# epoch loss\n1 0.5\n2 0.25\n",
		"epoch,phase,loss\n1,train,0.5\n1,val,0.75\n2,train,1\n", "rank,epoch,loss\n0,1,0.5\n1,1,0.25\n0,1,3\n", "epoch,loss\n1,4\n2,3\nepoch,loss\n1,5\n2,5\n1,7\n",
		"\"Step\",\"a - loss\",\"a - loss__MIN\",\"b - loss\"\n0,1,1,\n1,,,\"2\n\"\n", "run_id,key,value,timestamp,step\nx,loss,0.5,1700000000000,0\n",
		"timestamp, index, power.draw [W]\n2023/11/14 22:13:20.000, 0, 100.00 W\n2023/11/14 22:13:22.000, 1, [N/A]\n", "Wall time,Step,Value\n1700000000.25,10,0.5\n",
		"Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n1\t:\t1700000000.1\t 61.2\t0\t0\t1\t9\tpython a.py --gpus 2\n",
		",_step,_runtime,_timestamp,epoch,loss\n0,0,3.5,1700000000.5,0.5,2.5\n", "epoch,elapsed,val_acc\n1,1:02:03,87.5%\n2,1 day 0:00:01,88\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parts, _ := recordtest.CheckFormat(t, tableFormat(t, tableKind), "typed.csv", text)
		for _, p := range parts {
			if p.Run.Kind == "" {
				t.Errorf("run without a kind: %+v", p.Run.Info)
			}
		}
	})
}

// FuzzMappings checks that mappings of the user and tables of any content can be read.
func FuzzMappings(f *testing.F) {
	f.Add("workers=P,seconds=t", []byte("P,t\n1,10\n2,5\n"))
	f.Add("step=1,train_loss=2,epoch=3", []byte("1 0.5 0\n2 0.25 0\n"))
	f.Add(`metric="a,b",value=2,split=3`, []byte("\"a,b\",x,y\nloss,1,val\n"))
	f.Fuzz(func(t *testing.T, mapping string, text []byte) {
		mappings, err := ParseMappings([]string{mapping})
		if err != nil {
			return
		}
		for _, m := range mappings {
			if m.Field == "" || m.Column == "" {
				t.Errorf("mapping %+v of %q", m, mapping)
			}
		}
		for _, format := range Formats(mappings) {
			if format.Name == tableKind {
				format.Recognizes("a.csv", text)
				recordtest.CheckFormat(t, format, "a.csv", text)
				return
			}
		}
	})
}

func FuzzReadMLflow(f *testing.F) {
	const run = "mlruns/0/0123456789abcdef0123456789abcdef/"
	f.Add(run+"metrics/loss", []byte("1700000000000 0.5 0\n1700000001500 nan 10\n17"))
	f.Add(run+"params/n_gpus", []byte("4"))
	f.Fuzz(func(t *testing.T, path string, text []byte) {
		for _, name := range []string{mlflowMetricKind, mlflowSettingKind} {
			format := tableFormat(t, name)
			if format.Recognizes(path, text) {
				recordtest.CheckFormat(t, format, path, text)
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
