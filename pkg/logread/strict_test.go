package logread

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestStrict: Options.Strict refuses assumptions, and the patterns that the error
// prints state the same properties.
func TestStrict(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"log_4.csv": twoRows, "a/4gpu/out=1.log": oneEpoch, "b/4gpu/out=1.log": oneEpoch, "c/8gpu/00/train.log": oneEpoch, "d/gpu2.log": oneEpoch,
		"known.out": "+ srun -n 8 python unet.py\n" + oneEpoch,
	})
	before, _ := explained(t, dir)
	_, err := Options{Strict: true}.Read(t.Context(), dir)
	if err == nil {
		t.Fatal("assumptions are not refused")
	}
	text := err.Error()
	for _, want := range []string{
		"refused (strict)", `log_4.csv: workers 4, from the name of the file "log_4.csv"; series "native", from the name of the file "log_4.csv"; state this with --as 'log_4.csv=workers:4,series:native'`,
		"--as 'a/4gpu/out*1.log=workers:4,series:out=1'", "--as 'train.log=workers:8,seed:0,series:c'",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nwant %q", text, want)
		}
	}
	if strings.Contains(text, "known.out") {
		t.Errorf("the command states the workers and the series: %s", text)
	}
	o := Options{Strict: true}
	for _, m := range regexp.MustCompile(`--as '([^']*)'`).FindAllStringSubmatch(text, -1) {
		p, err := ParsePattern(m[1])
		check(t, err)
		o.As = append(o.As, p)
	}
	after, err := o.Read(t.Context(), dir)
	check(t, err)
	for i, r := range after.Runs {
		b := before.Runs[i]
		got, want := fmt.Sprint(r.Dir, r.Info.Workers, r.Info.Seed, r.Info.Series), fmt.Sprint(b.Dir, b.Info.Workers, b.Info.Seed, b.Info.Series)
		if got != want {
			t.Errorf("with the printed patterns: %s, before: %s", got, want)
		}
	}
}

// TestStrictWithoutAssumptions: nothing is refused if the content states everything.
func TestStrictWithoutAssumptions(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"table.csv": "study,series,workers,seed,epoch,seconds\na,native,4,1,1,2.5\n"})
	logs, err := Options{Strict: true}.Read(t.Context(), dir)
	check(t, err)
	if len(logs.Runs) != 1 {
		t.Errorf("%d runs", len(logs.Runs))
	}
}
