package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/figure"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// writeRuns writes n small run folders below dir: of so many series at ten worker
// counts, the rest as seeds, of ten epochs each.
func writeRuns(tb testing.TB, dir string, n, series int) {
	tb.Helper()
	const sizes, epochs = 10, 10
	for i := range n {
		workers := 1 << (i / series % sizes)
		info := runs.Info{
			Schema: runs.SchemaVersion, Study: "many", Series: fmt.Sprintf("series %d", i%series), Workers: workers, Seed: int64(i/series/sizes + 1),
			Status: runs.StatusDone, Started: time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC), BatchPerWorker: 4, GlobalBatch: 4 * workers,
		}
		text, err := json.Marshal(info)
		if err != nil {
			tb.Fatal(err)
		}
		var rows strings.Builder
		rows.WriteString("epoch,seconds,samples,samples_per_second,train_loss,val_loss,iou,lr\n")
		for e := 1; e <= epochs; e++ {
			seconds := (2 + 0.05*float64(workers-1)) * (1 + 0.01*float64(i%7))
			fmt.Fprintf(&rows, "%d,%g,%d,%g,%g,%g,%g,0.001\n", e, seconds, 48*workers, 48*float64(workers)/seconds, 1/float64(e), 1.1/float64(e), 0.08*float64(e))
		}
		run := filepath.Join(dir, fmt.Sprintf("series%d-n%d-s%d", i%series, workers, info.Seed))
		for _, err := range []error{
			os.MkdirAll(run, 0o755),
			os.WriteFile(filepath.Join(run, "run.json"), text, 0o644),
			os.WriteFile(filepath.Join(run, "epochs.csv"), []byte(rows.String()), 0o644),
		} {
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// BenchmarkManyRuns reads 5,000 run folders, makes the page, and draws the figures
// as PNG. KEEP names a folder for the run folders, the page and the pictures.
func BenchmarkManyRuns(b *testing.B) {
	for _, series := range []int{5, 100} {
		b.Run(fmt.Sprintf("%d_series", series), func(b *testing.B) { benchmarkRuns(b, series) })
	}
}

func benchmarkRuns(b *testing.B, series int) {
	dir := filepath.Join(os.Getenv("KEEP"), fmt.Sprintf("%d-series", series))
	if os.Getenv("KEEP") == "" {
		dir = b.TempDir()
	}
	logs := filepath.Join(dir, "logs")
	writeRuns(b, logs, 5000, series)
	b.Run("report", func(b *testing.B) {
		for range b.N {
			study, err := scaling.Read(logs)
			if err != nil {
				b.Fatal(err)
			}
			r, err := New(study, Options{})
			if err != nil {
				b.Fatal(err)
			}
			page := r.Page()
			b.ReportMetric(float64(len(page))/1e6, "MB")
			if err := os.WriteFile(filepath.Join(dir, "report.html"), []byte(page), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plot", func(b *testing.B) {
		for range b.N {
			study, err := scaling.Read(logs)
			if err != nil {
				b.Fatal(err)
			}
			figures, err := figure.All(study)
			if err != nil {
				b.Fatal(err)
			}
			for _, f := range figures {
				if err := f.Save(filepath.Join(dir, f.Name()+".png")); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// TestManyRunsPage: the tables of a page of 2,000 runs end with how many more rows
// there are, and the page stays below 5 MB.
func TestManyRunsPage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	dir := t.TempDir()
	writeRuns(t, dir, 2000, 1)
	study, err := scaling.Read(dir)
	check(t, err)
	r, err := New(study, Options{Only: []string{"epoch_time"}})
	check(t, err)
	page := r.Page()
	for _, want := range []string{
		"<summary>2000 runs</summary>", "and 1000 more, which lockstep read lists", "Each file: 2000", "and 1000 more, which lockstep read --explain lists",
		"and 150 more rows, which lockstep scaling --show explain lists", // 2,000 runs at 10 worker counts, of 50 rows
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	rows := strings.Count(page, ">run folder</td>") // of both tables, and the sum by kind
	if rows != 2*1000 && rows != 2*1000+1 {
		t.Errorf("%d rows of run folders, want 1,000 in each table", rows)
	}
	if len(page) > 5_000_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// TestManySeriesPage: a page of 100 series of 50 runs has rows, sentences and
// sections of the first 20 alone, says how many more there are and which command
// lists them, and stays below 5 MB.
func TestManySeriesPage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	dir := t.TempDir()
	writeRuns(t, dir, 5000, 100)
	study, err := scaling.Read(dir)
	check(t, err)
	r, err := New(study, Options{})
	check(t, err)
	page := r.Page()
	for _, want := range []string{
		"and 80 more series, which lockstep scaling lists", "and 80 more series, which lockstep scaling --show fit lists",
		"and 800 more rows, which lockstep scaling lists", "and 800 more rows, which lockstep scaling --show quality lists",
		"and 80 more like these, which lockstep scaling lists.", "and 80 more like these, which lockstep scaling --show fit lists.",
		"median of 100 series", "lowest to highest",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("the page has no section %s that it links to", link[1])
			break
		}
	}
	if len(page) > 5_000_000 {
		t.Errorf("the page has %d bytes, want at most 5,000,000", len(page))
	}
}
