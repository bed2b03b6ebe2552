package figure

import (
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/runs/transfers"
)

// twoRanks is a recording of a ring of two ranks.
func twoRanks() *transfers.Recording {
	r := &transfers.Recording{Algorithm: "ring", Transport: "tcp", Ranks: 2, Chunks: 2, Bytes: 8000}
	for step := range 2 {
		for from := range 2 {
			chunk := (from + 1 + step) % 2
			at := time.Duration(step)*time.Millisecond + time.Duration(from)*100*time.Microsecond
			r.Transfers = append(r.Transfers, transfers.Transfer{
				Step: step, From: from, To: 1 - from, Lo: chunk, Hi: chunk + 1, Add: step == 0, Bytes: 4000,
				Sent: at, Waited: at, Received: at + 500*time.Microsecond,
			})
		}
	}
	return r
}

// TestTransfers checks the table, the caption and the axes of the figure of a recording.
func TestTransfers(t *testing.T) {
	f, err := Options{}.Transfers(twoRanks())
	if err != nil {
		t.Fatal(err)
	}
	table := f.Table()
	if rows, steps := table.Nrow(), table.Col("step").Max(); rows != 4 || steps != 2 {
		t.Errorf("the table has %d rows and %v steps, want 4 and 2", rows, steps)
	}
	if got, want := table.Col("received_seconds").Max(), 1.6e-3; got != want {
		t.Errorf("the last transfer is received after %v s, want %v", got, want)
	}
	if want := "All-reduce of 8000 bytes by 2 ranks over tcp by the algorithm ring: 4 transfers in 2 steps, 1.6ms; each rank sent 1 times its buffer (2(N−1)/N is 1)."; !strings.HasPrefix(f.Caption(), want) {
		t.Errorf("the caption is %q, want %q first", f.Caption(), want)
	}
	svg := f.SVG()
	for _, want := range []string{"rank 0", "rank 1", "time (ms)", "added by the receiver", "copied by the receiver"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the image lacks %q", want)
		}
	}
	// A line and a head of each arrow, and of the two in the legend.
	if heads := len(regexp.MustCompile(`<path d="M[^"]*Z" style="fill:#`).FindAllString(svg, -1)); heads < 6 {
		t.Errorf("the image has %d filled shapes, want the heads of 6 arrows", heads)
	}
}

// TestFrames checks that there is a frame for each step and one before, that each shows how many
// ranks' numbers each chunk has, and that nothing is fetched from a network.
func TestFrames(t *testing.T) {
	f, err := NewFrames(twoRanks())
	if err != nil {
		t.Fatal(err)
	}
	page := f.HTML()
	frames := regexp.MustCompile(`<figure [^>]*><img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]*)"/><figcaption>([^<]*)</figcaption></figure>`).FindAllStringSubmatch(page, -1)
	want := []struct{ title, numbers, sent string }{
		{"before the first step", "1 1 1 1", "0 0"},
		{"step 1 of 2: 2 added, 0 to 0.6 ms", "2 1 1 2", "0.5 0.5"},
		{"step 2 of 2: 2 copied, 1 to 1.6 ms", "2 2 2 2", "1 1"},
	}
	if len(frames) != len(want) {
		t.Fatalf("there are %d frames, want %d", len(frames), len(want))
	}
	for i, w := range want {
		svg, err := base64.StdEncoding.DecodeString(frames[i][2])
		if err != nil {
			t.Fatal(err)
		}
		numbers, sent := texts(string(svg), `text-anchor="middle">(\d+)<`), texts(string(svg), `>sent ([0-9.]+) × buffer<`)
		if frames[i][1] != w.title || frames[i][3] != w.title || numbers != w.numbers || sent != w.sent {
			t.Errorf("frame %d is %q, %q with %s, sent %s; want %+v", i, frames[i][1], frames[i][3], numbers, sent, w)
		}
		if arrows, transfers := strings.Count(string(svg), "<path"), min(i, 1)*2; arrows != 2*transfers {
			t.Errorf("frame %d has %d paths, want a line and a head of %d arrows", i, arrows, transfers)
		}
	}
	if other := f.HTML(); other == page {
		t.Error("two cells with the same recording have the same id")
	}
	if without := strings.ReplaceAll(page, `src="data:`, ""); strings.Contains(without, "http") || strings.Contains(without, "src=") || strings.Contains(page, "BOX") {
		t.Error("the frames need something outside of them")
	}
	// A front-end removes these from a notebook that is not trusted.
	if without := page[:strings.Index(page, "<script>")]; strings.Contains(without, "<svg") || strings.Contains(without, "display") || strings.Contains(without, "<button") {
		t.Error("without the script, there is a drawing that front-ends remove, a hidden one, or a button")
	}
}

// texts returns the first groups of all matches of a pattern, separated by spaces.
func texts(page, pattern string) string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, " ")
}

// TestTransfersErrors checks that impossible recordings are refused.
func TestTransfersErrors(t *testing.T) {
	change := func(f func(r *transfers.Recording)) *transfers.Recording {
		r := twoRanks()
		f(r)
		return r
	}
	for _, c := range []struct {
		r    *transfers.Recording
		want string
	}{
		{change(func(r *transfers.Recording) { r.Transfers = nil }), "it has no transfers"},
		{change(func(r *transfers.Recording) { r.Transfers[2].To = 2 }), "transfer 2 of chunks 0 to 0 from rank 0 to rank 2"},
		{change(func(r *transfers.Recording) { r.Transfers[0].Hi = 3 }), "transfer 0"},
		{change(func(r *transfers.Recording) { r.Transfers[1].Received = 0 }), "transfer 1 was sent"},
		{change(func(r *transfers.Recording) { r.Ranks, r.Transfers = 1, nil }), "one rank alone sends nothing"},
	} {
		if _, err := (Options{}).Transfers(c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
	if _, err := NewFrames(change(func(r *transfers.Recording) { r.Ranks = 33 })); err == nil || !strings.Contains(err.Error(), "33 ranks are more than 32") {
		t.Errorf("33 ranks: the error is %v", err)
	}
}
