package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockstep/pkg/bench/internal/comparison"
)

// Required speeds and memory for reading, which one core of any machine must reach.
const (
	textRate     = 150  // MB/s of uncompressed text, for each kind of text
	eventsRate   = 1500 // MB/s, for event files with images
	scalarsRate  = 300  // MB/s, for event files with scalars only
	firstSeconds = 1    // seconds from the start to the first figure of 1,000 runs
	memoryMiB    = 64   // limit for the peak memory, for files of any length
)

// ReadOptions configures MeasureReading.
type ReadOptions struct {
	Lines     int // lines of the log that Lockstep and pandas parse and draw
	Runs      int // number of runs in the folder whose first figure is drawn; 0: not measured
	Megabytes int // size of each file whose reading is timed; 0: not measured
	// LongMegabytes is the size of the files with which peak memory is measured. They are written to
	// the system's folder for temporary files. 0 skips this measurement.
	LongMegabytes int
	Repeats       int
	Peer          PeerOptions
	Output        io.Writer // progress messages; nil: none
}

// Validate returns an error for the first invalid option.
func (o ReadOptions) Validate() error {
	if o.Lines < 2 || o.Repeats < 1 {
		return fmt.Errorf("bench read: got %d lines and %d repeats, want at least 2 lines and 1 repeat", o.Lines, o.Repeats)
	}
	if o.Runs < 0 || o.Megabytes < 0 || o.LongMegabytes < 0 {
		return fmt.Errorf("bench read: got %d runs, files of %d megabytes and long files of %d megabytes; want at least 0 for each (0 skips a measurement)", o.Runs, o.Megabytes, o.LongMegabytes)
	}
	return nil
}

// MeasureReading measures the reading of logs that are generated from a seed. A text log and a table of
// numbers are compared with pandas and matplotlib, alternating, without a target. Other values are compared
// with required ones: the time to the first figure of many runs, the speed for each kind of text and for event
// files, and the peak memory for long files. Event files have no peer, because no Debian package contains
// TensorBoard's reader. Without pandas or matplotlib, the error wraps ErrPeerMissing.
func MeasureReading(ctx context.Context, o ReadOptions) (records []Record, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lockstep-bench-read-")
	if err != nil {
		return nil, fmt.Errorf("bench read: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	peer, err := o.Peer.ScriptCommand(ctx, pandasScript, "pandas and matplotlib", "pandas", "matplotlib")
	if err != nil {
		return nil, fmt.Errorf("bench read: %w", err)
	}
	ours, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench read: %w", err)
	}
	b := readBench{
		ReadOptions: o, dir: dir, peer: peer, ours: append(ours, "--task", TaskRead),
		record: Record{Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx), Peer: "required"},
	}
	for _, measure := range []func(context.Context) ([]Record, error){b.compareWithPandas, b.measureFirstFigure, b.measureReading, b.measureLongFileMemory} {
		r, err := measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("bench read: %w", comparison.ContextCause(ctx, err))
		}
		records = append(records, r...)
	}
	return records, nil
}

const pandasScript = "pandas_logs.py"

// readBench contains the options of MeasureReading, the folder of the generated logs, and both commands.
type readBench struct {
	ReadOptions
	dir        string
	peer, ours []string
	record     Record // fields that all records share
}

func (b readBench) logf(format string, a ...any) { comparison.Logf(b.Output, format, a...) }

// comparedLog is a generated log that Lockstep and pandas read and draw.
type comparedLog struct {
	name  string
	file  string
	write func(path string, lines int) (bytes float64, err error)
	// requests contains one request per method of parsing. The first uses the peer's fastest method,
	// with which the peer also draws. The others use methods that its users often choose.
	requests []string
}

// comparedLogs returns a text log, from which pandas users extract values by a regular expression, and a
// table of numbers, for which pandas has a parser in C.
func comparedLogs() []comparedLog {
	return []comparedLog{
		{name: "SC21 log", file: "4GPU/out.log", write: writeSC21Log, requests: []string{requestParse, requestExtract}},
		{name: "study CSV", file: "log_4.csv", write: writeStudyLog, requests: []string{requestParse}},
	}
}

// compareWithPandas compares two times: of parsing, in processes that are warm, and from the start
// of a process to the image on disk.
func (b readBench) compareWithPandas(ctx context.Context) (records []Record, err error) {
	for _, l := range comparedLogs() {
		path := filepath.Join(b.dir, "beside", l.file)
		size, err := l.write(path, b.Lines)
		if err != nil {
			return nil, err
		}
		parses, err := b.compareParsing(ctx, l, path, size)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		panels := b.record
		panels.Name, panels.Unit = fmt.Sprintf("%s of %d lines to a PNG of 4 panels, whole process", l.name, b.Lines), "s"
		var a, p []float64
		if a, p, panels.Peer, err = b.compareDrawing(ctx, path); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		panels = comparison.CompareCosts(panels, a, p)
		b.logf("%s: %.3f s; %s: %.3f s", panels.Name, panels.Value, panels.Peer, panels.PeerValue)
		records = append(append(records, parses...), panels)
	}
	return records, nil
}

func (b readBench) compareParsing(ctx context.Context, l comparedLog, path string, size float64) (records []Record, err error) {
	peer, err := comparison.StartPeer(ctx, comparison.Program{Argv: append(b.peer, "--task", "parse"), Workers: 1})
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	ours, err := comparison.Start(ctx, comparison.Program{Argv: b.ours, Workers: 1})
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	for _, how := range l.requests {
		request := how + "\t" + path
		if _, _, err := measureAlternately(ours, peer, request, 2); err != nil { // does not count
			return nil, err
		}
		a, p, err := measureAlternately(ours, peer, request, b.Repeats)
		if err != nil {
			return nil, err
		}
		r := b.record
		r.Name, r.Unit, r.Peer = fmt.Sprintf("parse %s, %d lines", l.name, b.Lines), "MB/s", peer.About.Name
		if how == requestExtract {
			r.Peer += ", str.extract"
		}
		r = comparison.CompareRates(r, comparison.PerSecond(size/1e6, a), comparison.PerSecond(size/1e6, p))
		b.logf("%s: %.0f MB/s; %s: %.0f MB/s", r.Name, r.Value, r.Peer, r.PeerValue)
		records = append(records, r)
	}
	return records, nil
}

// compareDrawing measures alternately complete processes of Lockstep and of pandas that draw a log. It returns
// the seconds of each repeat, and the peer's name.
func (b readBench) compareDrawing(ctx context.Context, path string) (ours, peers []float64, peer string, err error) {
	for i := range 1 + b.Repeats { // the first is not counted, because it reads files from the disk
		a, _, err := timeProcess(ctx, b.ours, requestPanels, path, filepath.Join(b.dir, "ours.png"))
		if err != nil {
			return nil, nil, "", err
		}
		p, name, err := timeProcess(ctx, append(b.peer, "--task", "panels"), requestPanels, path, filepath.Join(b.dir, "peer.png"))
		if err != nil {
			return nil, nil, "", err
		}
		if peer = name; i > 0 {
			ours, peers = append(ours, a), append(peers, p)
		}
	}
	return ours, peers, peer, nil
}

// timeProcess starts a process with one request, whose last word is the path of the image to write.
// It returns the time from the start to the answer, and the name in the process's greeting.
func timeProcess(ctx context.Context, argv []string, request ...string) (seconds float64, name string, err error) {
	picture := request[len(request)-1]
	begin := time.Now()
	s, err := comparison.StartPeer(ctx, comparison.Program{Argv: argv, Workers: 1})
	if err != nil {
		return 0, "", err
	}
	defer s.Close()
	if _, err := s.Ask(strings.Join(request, "\t")); err != nil {
		return 0, "", err
	}
	seconds = time.Since(begin).Seconds()
	info, err := os.Stat(picture)
	if err != nil || info.Size() == 0 {
		return 0, "", fmt.Errorf("%s wrote no image: %w", s.About.Name, err)
	}
	return seconds, s.About.Name, os.Remove(picture)
}

// compareWithRequirement returns r with the measured values and the required value filled in.
// smallerIsBetter is true for times and memory.
func (b readBench) compareWithRequirement(r Record, values []float64, required float64, smallerIsBetter bool) Record {
	must := make([]float64, len(values))
	for i := range must {
		must[i] = required
	}
	r.Peer, r.Target = "required", 1
	if smallerIsBetter {
		r = comparison.CompareCosts(r, values, must)
	} else {
		r = comparison.CompareRates(r, values, must)
	}
	b.logf("%s: %.4g %s, required %.4g", r.Name, r.Value, r.Unit, required)
	return r
}

// measureFirstFigure measures the time from a process's start to the first figure of a folder of many runs.
func (b readBench) measureFirstFigure(ctx context.Context) ([]Record, error) {
	if b.Runs == 0 {
		return nil, nil
	}
	folder := filepath.Join(b.dir, "runs")
	for i := range b.Runs {
		if _, err := writeStudyLog(filepath.Join(folder, fmt.Sprintf("repeat%d", i/10), fmt.Sprintf("log_%d.csv", 1<<(i%10))), 200); err != nil {
			return nil, err
		}
	}
	var values []float64
	for i := range 1 + b.Repeats {
		v, _, err := timeProcess(ctx, b.ours, requestFirst, folder, filepath.Join(b.dir, "first.png"))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			values = append(values, v)
		}
	}
	r := b.record
	r.Name, r.Unit = fmt.Sprintf("%d runs to the first figure, whole process", b.Runs), "s"
	return []Record{b.compareWithRequirement(r, values, firstSeconds, true)}, nil
}

// measureReading measures each kind of file on one core.
func (b readBench) measureReading(ctx context.Context) (records []Record, err error) {
	if b.Megabytes == 0 {
		return nil, nil
	}
	ours, err := comparison.Start(ctx, comparison.Program{Argv: b.ours, Env: []string{"GOMAXPROCS=1"}, Workers: 1})
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	for _, k := range speedFileKinds() {
		path := filepath.Join(b.dir, "rates", k.file)
		size, err := k.writeFile(path, int64(b.Megabytes)*1e6)
		if err != nil {
			return nil, err
		}
		var values []float64
		for i := range 1 + b.Repeats {
			seconds, err := ours.TimeRequest(k.newParseRequest(path))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			if i > 0 {
				values = append(values, float64(size)/1e6/seconds)
			}
		}
		r := b.record
		r.Name, r.Unit = "read "+k.name+", one core", "MB/s"
		records = append(records, b.compareWithRequirement(r, values, k.required, false))
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// measureLongFileMemory measures the peak memory for long files, each in a separate process.
func (b readBench) measureLongFileMemory(ctx context.Context) (records []Record, err error) {
	if b.LongMegabytes == 0 {
		return nil, nil
	}
	for _, k := range memoryFileKinds() {
		path := filepath.Join(b.dir, "long", k.file)
		size, err := k.writeFile(path, int64(b.LongMegabytes)*1e6)
		if err != nil {
			return nil, err
		}
		peak, err := b.measurePeakMemory(ctx, path)
		if err = errors.Join(err, os.Remove(path)); err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		r := b.record
		r.Name, r.Unit = fmt.Sprintf("peak memory, %s of %.3g GB", k.name, float64(size)/1e9), "MiB"
		records = append(records, b.compareWithRequirement(r, []float64{peak / (1 << 20)}, memoryMiB, true))
	}
	return records, nil
}

// measurePeakMemory returns the peak bytes of a process that reads a file.
func (b readBench) measurePeakMemory(ctx context.Context, path string) (float64, error) {
	ours, err := comparison.Start(ctx, comparison.Program{Argv: b.ours, Workers: 1})
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	if _, err := ours.TimeRequest(requestParse + "\t" + path); err != nil {
		return 0, err
	}
	return ours.PeakBytes()
}
