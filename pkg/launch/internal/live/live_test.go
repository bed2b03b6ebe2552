package live

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs"
)

func sampleTable() RunTable {
	nan := math.NaN()
	return RunTable{Rows: []RunRow{
		{Run: "ddp-n1-s1", Workers: 1, State: runs.StatusDone, Epoch: 4, Epochs: 4, SamplesPerSecond: 50.26, Loss: 0.3712, IoU: 0.7, Elapsed: 90 * time.Second},
		{Run: "ddp-n2-s1", Workers: 2, State: runs.StatusRunning, Epoch: 1, Epochs: 4, SamplesPerSecond: 99, Loss: 0.5, IoU: nan, Elapsed: 12 * time.Second},
		{Run: "ddp-n4-s1", Workers: 4, State: stateWaiting, Epochs: 4, SamplesPerSecond: nan, Loss: nan, IoU: nan, Note: "waits for its turn"},
	}}
}

func TestTable(t *testing.T) {
	want := `run        workers  state     epoch  samples/s    loss     IoU     elapsed  ends about
ddp-n1-s1        1  done     4 of 4       50.3  0.3712  0.7000  1 min 30 s           –
ddp-n2-s1        2  running  1 of 4       99.0  0.5000       –        12 s           –
ddp-n4-s1        4  waiting  0 of 4          –       –       –           –           –
ddp-n4-s1: waits for its turn`
	if got := sampleTable().String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTableEscapes checks that names and reasons cannot contain elements or control characters.
func TestTableEscapes(t *testing.T) {
	table := RunTable{Heading: "<p>\x1b[2J", Rows: []RunRow{{Run: "<b>\x1b[2J", Note: "<script>\x1b[1m"}}, Notes: []string{"<i>"}}
	for _, text := range []string{table.HTML(), table.String()} {
		if strings.Contains(text, "\x1b") {
			t.Errorf("control character in %q", text)
		}
	}
	for _, bad := range []string{"<p>", "<b>", "<script>", "<i>"} {
		if strings.Contains(table.HTML(), bad) {
			t.Errorf("HTML contains %q", bad)
		}
	}
}

func TestTableLeavesOutRows(t *testing.T) {
	table := RunTable{}
	for i := range 50 {
		state := []string{runs.StatusDone, stateWaiting, runs.StatusRunning}[min(2, i/24)]
		table.Rows = append(table.Rows, RunRow{Run: string(rune('A' + i)), State: state})
	}
	table.Heading = "heading"
	lines := table.formatLines(11)
	if len(lines) != 11 || lines[0] != "heading" {
		t.Errorf("got %d lines, want the heading and 10 more:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if last := lines[len(lines)-1]; last != "not shown: 24 done, 18 waiting" {
		t.Errorf("last line is %q", last)
	}
	if n := strings.Count(strings.Join(lines, "\n"), runs.StatusRunning); n != 2 {
		t.Errorf("%d running rows, want both", n)
	}
}

func TestFormatTimes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: unknownText, 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s", 601 * time.Second: "10 min", 2*time.Hour + 300*time.Second: "2 h 5 min",
	} {
		if got := formatElapsed(d); got != want {
			t.Errorf("elapsed %v: got %q, want %q", d, got, want)
		}
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for d, want := range map[time.Duration]string{
		65 * time.Second: "12:01:05", time.Hour: "13:00", 24 * time.Hour: "2026-03-02 12:00",
	} {
		if got := formatEstimatedEnd(now.Add(d), now); got != want {
			t.Errorf("%v later: got %q, want %q", d, got, want)
		}
	}
}

// screen is a terminal that knows the sequences which terminalView writes.
type screen struct {
	lines []string
	row   int
}

func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b["):
			end := strings.IndexAny(text, "AKJ")
			n := 0
			for _, c := range text[2:end] {
				n = 10*n + int(c-'0')
			}
			switch text[end] {
			case 'A':
				s.row -= n
			case 'J':
				s.lines = s.lines[:s.row]
			}
			text = text[end+1:]
		case text[0] == '\r':
			s.lines = append(s.lines[:s.row], append([]string{""}, s.lines[min(len(s.lines), s.row+1):]...)...)
			text = text[1:]
		case text[0] == '\n':
			s.row++
			text = text[1:]
		default:
			end := strings.IndexAny(text, "\r\n\x1b")
			s.lines[s.row] += text[:end]
			text = text[end:]
		}
	}
	return len(p), nil
}

// TestTerminalView checks that each table replaces the one before, also if it is shorter, and
// that no line is wider than the terminal.
func TestTerminalView(t *testing.T) {
	s := &screen{}
	v := &terminalView{w: s, size: func() (int, int) { return 70, 24 }}
	table := sampleTable()
	v.Show(table, nil, false)
	table.Rows[1].Epoch = 2
	table.Rows[2].Note = ""
	v.Show(table, nil, false)
	got := strings.Join(s.lines, "\n")
	if len(s.lines) != 4 || !strings.Contains(got, "2 of 4") || strings.Contains(got, "1 of 4") || strings.Contains(got, "its turn") {
		t.Errorf("screen shows\n%s", got)
	}
	for _, line := range s.lines {
		if n := len([]rune(line)); n > 69 {
			t.Errorf("%d characters in a terminal of 70: %q", n, line)
		}
	}
}

func TestLineView(t *testing.T) {
	var b bytes.Buffer
	v := NewView(&b)
	table := sampleTable()
	v.Show(table, nil, false)
	v.Show(table, nil, false) // nothing is new
	table.Rows[1].State, table.Rows[1].Note = runs.StatusFailed, "out of memory"
	v.Show(table, nil, true)
	want := `ddp-n1-s1: done, epoch 4 of 4, 50.3 samples/s, loss 0.3712, IoU 0.7000
ddp-n2-s1: running, epoch 1 of 4, 99.0 samples/s, loss 0.5000
ddp-n2-s1: failed, epoch 1 of 4, 99.0 samples/s, loss 0.5000: out of memory
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
