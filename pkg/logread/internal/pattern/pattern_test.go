package pattern

import (
	"strings"
	"testing"
)

// TestParse checks what patterns state about paths, and the errors of patterns.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          string // the evidence, the path without the rank if there is one, and the problems
	}{
		{"log_hvd_{workers}.csv=PyTorch Horovod", "a/log_hvd_12.csv", `workers 12, series "PyTorch Horovod"`},
		{"log_hvd_{workers}.csv=PyTorch Horovod", "a/log_hvd_12.csv.gz", `workers 12, series "PyTorch Horovod"`},
		{"log_{workers}.csv", "a/log_hvd_12.csv", "no match"},
		{"log_{workers}.csv", "a/other_log_12.csv", "no match"}, // whole names
		{"{series}/{workers}GPU/*/out.log=SC21 {series}", "x/base/4GPU/00/out.log", `workers 4, series "SC21 base"`},
		{"{series}/**/seed{seed}.log", "x/base/a/b/seed3.log", `series "x", seed 3`},
		{"job_{workers}_rank{rank}.txt", "job_2_rank1.txt", "workers 2, rank 1, job_2_rank*.txt"},
		{"log_{workers}.csv", "log_99999999999999999999.csv", "no match"},
		// Constants, factors, and all properties.
		{"*.out=PyTorch: native", "a/b.out", `series "PyTorch: native"`}, // the name of a series
		{"*.out=workers:1", "a/b.out", "workers 1"},
		{"*.out=workers:1,series:native", "a/b.out", `workers 1, series "native"`},
		{"*.out=series:a, b,workers:2", "a/b.out", `series "a, b", workers 2`},
		{"run_{nodes}n.out=workers:{nodes}*8", "a/run_4n.out", "nodes 4, workers 32"},
		{"run_{nodes}n.out=workers:4*{nodes}*2,nodes:1", "a/run_4n.out", "workers 32, nodes 1"},
		{"{model}_b{batch}_{seed}.out=series:{model} of {batch}", "a/unet_b32_7.out", `model "unet", batch 32, seed 7, series "unet of 32"`},
		{"*.out=rank:0,model:r50,batch:64,seed:0,nodes:2", "b.out", `rank 0, model "r50", batch 64, seed 0, nodes 2`},
		{"n{workers}.out", "n15000000.out", `the pattern "n{workers}.out": workers 15000000 is not plausible: expected a number from 1 to 262144`},
		{"n{nodes}.out=workers:{nodes}*8", "n100000.out", `nodes 100000, the pattern "n{nodes}.out=workers:{nodes}*8": workers 800000 is not plausible: expected a number from 1 to 262144`},
		{"n{workers}.out", "n0.out", `the pattern "n{workers}.out": workers 0 is not plausible: expected a number from 1 to 262144`},
	} {
		p, err := Parse(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		m, ok := p.Match(c.path)
		var got []string
		for _, e := range m.Evidence {
			got = append(got, e.String())
		}
		if m.Rank > 0 {
			got = append(got, m.Rest)
		}
		got = append(got, m.Problems...)
		if !ok {
			got = []string{"no match"}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s on %s: got %s, want %s", c.pattern, c.path, text, c.want)
		}
	}
	for text, want := range map[string]string{
		"": "expected the end of a path", "a=": "name of a series", "{n}.csv": `unknown field "{n}"; use {workers}`,
		"{workers}_{workers}.csv": "duplicate field {workers}", "a=x {series}": `unknown field "{series}" after the =`, "a{": "unknown field",
		"*.out=workers:15000000": "workers 15000000 is not plausible: expected a number from 1 to 262144", "*.out=workers:0": "workers 0 is not plausible",
		"*.out=workers:{nodes}*8": `unknown field "{nodes}" after the =, in the value of workers`, "{nodes}.out=workers:{nodes}*400000": "is not plausible",
		"*.out=workers:many": `expected a number, a field such as {nodes}, or a product such as {nodes}*8, got "many"`, "*.out=workers:": "property workers has no value",
		"*.out=worker:4": `unknown property "worker" (did you mean workers?)`, "*.out=gpus:4": `unknown property "gpus" (did you mean workers?)`, "*.out=Series:a": `unknown property "Series" (did you mean series?)`,
		"*.out=workers:1,x": `expected a property and its value, such as workers:4, got "x"`, "*.out=workers:1,workers:2": "duplicate property workers",
		"*.out=series:{model}": `unknown field "{model}" after the =`, "*.out=batch:3000000000": "batch 3000000000 is not plausible",
		"log_{workers}.csv=X {nonsense}": `unknown field "{nonsense}"`, "log_{workers}.csv=X {workers}": `unknown field "{workers}"`, "{series}/a.csv={series": `unknown field "{series"`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q", text, err, want)
		}
	}
}

// FuzzParse checks that patterns of any text can be parsed and matched.
func FuzzParse(f *testing.F) {
	f.Add("log_hvd_{workers}.csv=PyTorch Horovod", "a/log_hvd_12.csv")
	f.Add("{series}/{workers}GPU/**/r{rank}_s{seed}.log.gz=x {series}", "base/4GPU/00/r3_s1.log.gz")
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Errorf("%q prints as %q", text, p)
		}
		p.Match(path)
	})
}
