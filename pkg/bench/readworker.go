package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/figure"
	"lockstep/pkg/logread"
	"lockstep/pkg/scaling"
)

// TaskRead is the task (WorkerOptions.Task) of a worker that reads logs.
const TaskRead = "read"

// Requests to a worker with TaskRead. The words of a request are separated by tabs.
const (
	requestParse   = "parse"   // parse PATH [TEMPLATE]: parse the runs in PATH, with a template of lines
	requestExtract = "extract" // extract PATH: the same as parse; the peer uses another method
	requestPanels  = "panels"  // panels PATH IMAGE: draw four panels of the runs in PATH as a PNG
	requestFirst   = "first"   // first FOLDER IMAGE: draw the epoch times of all runs in FOLDER
)

// Size of the image that the request panels draws, on both sides.
const (
	panelsWidth, panelsHeight = 1200, 800 // pixels
	panelsDPI                 = 100
)

// answerReadRequests answers requests to read logs, until the end of in.
func answerReadRequests(ctx context.Context, in io.Reader, out io.Writer) error {
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(comparison.Greeting{Name: "lockstep", Threads: 1}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		begin := time.Now()
		a, err := answerReadRequest(ctx, strings.Split(lines.Text(), "\t"))
		if err != nil {
			return fmt.Errorf("bench worker: %w", err)
		}
		if a.PeakBytes == 0 {
			a.Seconds = time.Since(begin).Seconds()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answerReadRequest(ctx context.Context, words []string) (comparison.Answer, error) {
	switch {
	case len(words) == 1 && words[0] == comparison.RequestMemory:
		n, err := readPeakBytes("/proc/self/status")
		return comparison.Answer{PeakBytes: n}, err
	case len(words) == 2 && (words[0] == requestParse || words[0] == requestExtract), len(words) == 3 && words[0] == requestParse:
		logs, err := logread.Options{Lines: words[2:]}.Read(ctx, words[1])
		if err != nil {
			return comparison.Answer{}, err
		}
		if len(logs.Runs) == 0 {
			return comparison.Answer{}, fmt.Errorf("found no run in %s: %.500s", words[1], fmt.Sprint(logs.Problems))
		}
		return comparison.Answer{}, nil
	case len(words) == 3 && words[0] == requestPanels:
		return comparison.Answer{}, drawPanels(words[1], words[2])
	case len(words) == 3 && words[0] == requestFirst:
		study, err := scaling.Read(words[1])
		if err != nil {
			return comparison.Answer{}, err
		}
		f, err := figure.EpochTime(study)
		if err != nil {
			return comparison.Answer{}, err
		}
		return comparison.Answer{}, f.Save(words[2])
	}
	return comparison.Answer{}, fmt.Errorf("unknown request %q for a worker with the task %s", words, TaskRead)
}

// drawPanels draws four figures into one PNG: the loss by epoch, the loss by time, the epoch time by
// workers, and the throughput by workers. Without a throughput it draws the IoU.
func drawPanels(path, picture string) error {
	study, err := scaling.Read(path)
	if err != nil {
		return err
	}
	names := []string{"loss_by_epoch", "loss_by_time", "epoch_time", "throughput"}
	if p := study.Points[0]; p.Throughput.N == 0 && p.IoU.N > 0 {
		names[3] = "iou"
	}
	figures := make([]*figure.Figure, len(names))
	for i, name := range names {
		if figures[i], err = figure.Make(name, study); err != nil {
			return err
		}
	}
	page, err := figure.Panels("", figures...)
	if err != nil {
		return err
	}
	page.Width, page.Height, page.DPI = panelsWidth*vg.Inch/panelsDPI, panelsHeight*vg.Inch/panelsDPI, panelsDPI
	return page.Save(picture)
}
