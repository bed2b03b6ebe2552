package textlog

import "lockstep/pkg/logread/internal/scan"

// What the shell leaves in a job's output: how long a command took (bash's
// time: minutes go above 60),
//
//	real    342m11.864s
//	user    2105m3.120s
//	sys     101m0.005s
//
// and the command itself, where the script echoes it (set -x):
//
//   - python ResNet50.py --epochs 5 --batch_size 256 --n_gpus 1
//     srun -n 4 python train.py

// bashReal is the wall time of the run above. What follows is another run.
func (t *textLog) bashReal(m []byte) verdict {
	seconds, ok := bashSeconds(m, "real")
	if !ok {
		return unknown
	}
	run := t.form(formBash)
	run.run.WallSeconds = seconds
	run.closed = true
	t.in.Report.Records++
	return used
}

func (t *textLog) bashOther(m []byte) verdict {
	for _, name := range []string{"user", "sys"} {
		if _, ok := bashSeconds(m, name); ok {
			return idle
		}
	}
	return unknown
}

// bashSeconds reads "real\t342m11.864s", and with TIMEFORMAT -p "real 12.34".
func bashSeconds(m []byte, name string) (float64, bool) {
	c := scan.Cursor{Rest: m}
	c.Expect(name)
	if c.Failed || len(c.Rest) == 0 || c.Rest[0] != ' ' && c.Rest[0] != '\t' {
		return 0, false
	}
	v := c.SkipBlanks().Float()
	if c.Accept("m") {
		s := c.Float()
		v = v*60 + s
		c.Expect("s")
	}
	return v, c.Complete() && v > 0
}
