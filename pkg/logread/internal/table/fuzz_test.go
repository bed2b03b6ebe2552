package table

import (
	"testing"

	"lockstep/pkg/logread/internal/recordtest"
)

func FuzzReadLightning(f *testing.F) {
	recordtest.AddFuzzSeeds(f, "lightning/version_0/metrics.csv")
	f.Fuzz(func(t *testing.T, text []byte) {
		recordtest.ReadAndCheckFormat(t, Format(nil), "metrics.csv", text)
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
		parts, _ := recordtest.ReadAndCheckFormat(t, Format(nil), "typed.csv", text)
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
		for _, format := range append(MappedFormats(mappings), Format(mappings)) {
			format.Recognizes("a.csv", text)
			recordtest.ReadAndCheckFormat(t, format, "a.csv", text)
		}
	})
}
