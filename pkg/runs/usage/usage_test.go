package usage

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sample returns a sample of which every value is measured.
func sample(second int) Sample {
	s := NewSample()
	s.Time, s.Seconds, s.Host, s.Epoch = time.Unix(1700000000+int64(second), 0), 1, "node1", 1
	for i, c := range measuredColumns() {
		*c.value(&s) = float64(100*i + second)
	}
	return s
}

// TestWriteAndRead: samples read back, also after a resumed run has appended to them. A row that a
// kill has torn is removed.
func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	write := func(rank int, samples ...Sample) {
		t.Helper()
		w, err := Create(dir, rank)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			if err := w.Append(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	unmeasured := sample(1)
	unmeasured.GPUWatts, unmeasured.Epoch = math.NaN(), 0
	write(10, sample(0))
	write(2, sample(0), unmeasured)
	f, err := os.OpenFile(filepath.Join(dir, FileName(2)), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("1700000002.000,1,no"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	records, problems, err := Read(dir)
	if err != nil || len(problems) > 0 || len(records) != 2 || len(records[0].Samples) != 2 {
		t.Fatalf("while a row is written: %+v, %v, %v", records, problems, err)
	}
	write(2, sample(5))
	records, problems, err = Read(dir)
	if err != nil || len(problems) > 0 || len(records) != 2 || records[0].Rank != 2 || records[1].Rank != 10 || len(records[0].Samples) != 3 {
		t.Fatalf("%+v, %v, %v", records, problems, err)
	}
	if got := records[0].Samples[2]; got != sample(5) {
		t.Errorf("got %+v, want %+v", got, sample(5))
	}
	if got := records[0].Samples[1]; !math.IsNaN(got.GPUWatts) || got.Epoch != 0 || got.IsEmpty() {
		t.Errorf("got %+v", got)
	}
	if !NewSample().IsEmpty() {
		t.Error("a new sample is not empty")
	}
}

// TestRead: rows that cannot be used are problems with their line, and all others are used; a newer
// version may add columns.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	h := "unix_seconds,seconds,host,epoch,cpu_cores,new"
	for name, text := range map[string]string{
		"usage-0.csv": h + "\n1700000000,1,a,1,0.5,x\n1700000000,1,a,1,0.5\n1700000001,1,a,1,much,x\n,1,a,1,2,3\n1700000002,1,a,1,1.5,y\n",
		"usage-1.csv": "disk,free\n1,2\n", "usage-02.csv": h + "\n", "usage-3.csv": "", "usage-x.csv": "x\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	records, problems, err := Read(dir)
	if err != nil || len(records) != 3 || len(records[0].Samples) != 2 || records[0].Samples[1].CPUCores != 1.5 || !math.IsNaN(records[0].Samples[0].MemoryBytes) {
		t.Errorf("%+v, %v", records, err)
	}
	var all []string
	for _, p := range problems {
		all = append(all, strings.TrimPrefix(p.String(), dir+"/"))
	}
	want := "usage-0.csv:3: expected 6 cells, got 5|usage-0.csv:4: column cpu_cores: expected a number|usage-0.csv:5: columns unix_seconds and seconds|usage-1.csv:1: expected the header"
	for i, w := range strings.Split(want, "|") {
		if len(all) != 4 || !strings.HasPrefix(all[i], w) {
			t.Errorf("problems %q, want %q", all, want)
			break
		}
	}
}

// TestLinksOutOfTheFolder: a link in the run folder is neither read nor written.
func TestLinksOutOfTheFolder(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(outside, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, FileName(0))); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	if _, err := Create(dir, 0); err == nil {
		t.Error("the file outside is opened")
	}
	if records, problems, err := Read(dir); err != nil || len(records) != 0 || len(problems) != 1 {
		t.Errorf("%v, %v, %v", records, problems, err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "text" {
		t.Errorf("the file outside has %q, %v", text, err)
	}
}

// TestSummarize: means are weighted with the time, and leave out what was not measured.
func TestSummarize(t *testing.T) {
	a, b, c := NewSample(), NewSample(), NewSample()
	a.Seconds, a.CPUCores, a.MemoryBytes, a.ProcessorWatts, a.Host = 1, 1, 50, 10, "a"
	b.Seconds, b.CPUCores, b.MemoryBytes, b.ProcessorWatts, b.Host = 3, 2, 80, 20, "a"
	c.Seconds, c.MemoryBytes, c.Host = 4, 60, "b"
	s := Record{Rank: 3, Samples: []Sample{a, b, c}}.Summarize()
	if s.Rank != 3 || s.Host != "b" || s.Seconds != 8 || s.CPUCores != 1.75 || s.PeakMemoryBytes != 80 || s.ProcessorWatts != 17.5 || s.ProcessorJoules != 70 {
		t.Errorf("%+v", s)
	}
	for _, v := range []float64{s.GPUPercent, s.GPUJoules, s.PeakGPUMemoryBytes, s.SentBytesPerSecond, Record{}.Summarize().CPUCores} {
		if !math.IsNaN(v) {
			t.Errorf("got %g of what was not measured", v)
		}
	}
}
