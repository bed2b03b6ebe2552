package figure

import (
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"image/color"
	"strings"
	"time"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs/transfers"
)

// Frames shows a recorded all-reduce step by step: which rank sends which chunks to which rank, and
// from how many ranks each chunk contains numbers after that. Notebooks show it by its HTML method.
// The frames play by themselves, and a slider selects one; nothing is fetched from a network.
type Frames struct {
	recording *transfers.Recording
}

// NewFrames returns the frames of a recording.
func NewFrames(r *transfers.Recording) (*Frames, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("draw frames: %w", err)
	}
	if r.Ranks > maxFrameRanks {
		return nil, fmt.Errorf("draw frames: %d ranks are more than %d, which fit on a screen: draw the figure with Options.Transfers", r.Ranks, maxFrameRanks)
	}
	return &Frames{r}, nil
}

// maxFrameRanks is the largest number of ranks for which frames are legible.
const maxFrameRanks = 32

// String describes the recording, for output that cannot show HTML.
func (f *Frames) String() string { return f.recording.Describe() }

// Sizes of a frame in pixels.
const (
	frameLeft   = 64  // of the chunks
	frameChunks = 480 // width of all chunks
	frameRight  = 190 // of the text behind the chunks
	frameTop    = 12
	frameRow    = 58 // distance between ranks
	frameCell   = 26 // height of a chunk
	frameWidth  = frameLeft + frameChunks + frameRight
)

//go:embed transferframes.js
var framesScript string

// HTML returns a fragment for a page or a notebook: one image per frame, each with its title, and a
// script that shows one image at a time. Without the script, as in a notebook that is not trusted,
// all images are shown one below the other. The first frame is the state before the first step.
func (f *Frames) HTML() string {
	r := f.recording
	var b strings.Builder
	id := "frames-" + rand.Text() // several cells of a notebook may show the same recording
	fmt.Fprintf(&b, `<div id="%s" style="max-width:%dpx">`+"\n", id, frameWidth)
	fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(r.Describe()))
	for frame := range r.Steps() + 1 {
		// Front-ends remove SVG elements from a notebook that is not trusted, but no images.
		title := html.EscapeString(f.frameTitle(frame))
		fmt.Fprintf(&b, "<figure style=\"margin:0\"><img alt=\"%s\" src=\"data:image/svg+xml;base64,%s\"/><figcaption>%[1]s</figcaption></figure>\n",
			title, base64.StdEncoding.EncodeToString([]byte(f.drawFrame(frame))))
	}
	fmt.Fprintf(&b, `<p>Cells: how many ranks' numbers a chunk is the sum of after the step, green if of all. Arrows: the transfers of the step, <span style="color:%s">added</span> or <span style="color:%s">copied</span> by the receiver.</p>`+"\n", formatHex(addedTransferColor()), formatHex(copiedTransferColor()))
	b.WriteString("<script>" + strings.Replace(framesScript, "BOX", id, 1) + "</script>\n</div>\n")
	return b.String()
}

// frameTitle describes a frame: its transfers and their times.
func (f *Frames) frameTitle(frame int) string {
	if frame == 0 {
		return "before the first step"
	}
	adds, copies := 0, 0
	var first, last time.Duration = -1, 0
	for _, t := range f.recording.Transfers {
		if t.Step != frame-1 {
			continue
		}
		if t.Add {
			adds++
		} else {
			copies++
		}
		if first < 0 || t.Sent < first {
			first = t.Sent
		}
		last = max(last, t.Received)
	}
	var what []string
	if adds > 0 {
		what = append(what, fmt.Sprintf("%d added", adds))
	}
	if copies > 0 {
		what = append(what, fmt.Sprintf("%d copied", copies))
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.3g", float64(d.Nanoseconds())/1e6) }
	return fmt.Sprintf("step %d of %d: %s, %s to %s ms", frame, f.recording.Steps(), strings.Join(what, ", "), ms(first), ms(last))
}

// drawFrame returns an SVG image of the chunks before the step of the frame, with the transfers of
// the step as arrows.
func (f *Frames) drawFrame(frame int) string {
	r := f.recording
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13" style="background:#fff">`+"\n",
		frameWidth, frameTop+frameRow*r.Ranks)
	palette := element.Palette()
	cell := float64(frameChunks) / float64(r.Chunks)
	counts := r.Contributions(frame)
	sent := make([]int, r.Ranks)
	for _, t := range r.Transfers {
		if t.Step < frame {
			sent[t.From] += t.Bytes
		}
	}
	for rank, chunks := range counts {
		y := frameTop + rank*frameRow
		fmt.Fprintf(&b, `<text x="4" y="%d">rank %d</text>`+"\n", y+frameCell/2+5, rank)
		for c, count := range chunks {
			fill := palette[0]
			if count == r.Ranks {
				fill = palette[2]
			}
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="%.2f" stroke="#fff"/>`+"\n",
				frameLeft+float64(c)*cell, y, cell, frameCell, formatHex(fill), 0.15+0.85*float64(count)/float64(r.Ranks))
			if cell >= 24 {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", frameLeft+(float64(c)+0.5)*cell, y+frameCell/2+5, count)
			}
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">sent %.3g × buffer</text>`+"\n", frameLeft+frameChunks+10, y+frameCell/2+5, float64(sent[rank])/float64(max(r.Bytes, 1)))
	}
	for _, t := range r.Transfers {
		if t.Step == frame-1 {
			drawTransfer(&b, t, cell)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawTransfer draws an arrow from the chunks of the sender to the same chunks of the receiver.
func drawTransfer(b *strings.Builder, t transfers.Transfer, cell float64) {
	stroke := formatHex(copiedTransferColor())
	if t.Add {
		stroke = formatHex(addedTransferColor())
	}
	x := frameLeft + float64(t.Lo+t.Hi)/2*cell
	from, to := float64(frameTop+t.From*frameRow+frameCell), float64(frameTop+t.To*frameRow)-2
	head := 7.0
	if t.To < t.From {
		from, to = float64(frameTop+t.From*frameRow), float64(frameTop+t.To*frameRow+frameCell)+2
		head = -7
	}
	// Arrows over several ranks bend, so that they do not hide each other.
	bend := 10 * float64(max(t.From-t.To, t.To-t.From)-1)
	fmt.Fprintf(b, `<path d="M%.1f %.1f Q%.1f %.1f %.1f %.1f" fill="none" stroke="%s" stroke-width="2"/>`+"\n", x, from, x+bend, (from+to)/2, x, to-head, stroke)
	fmt.Fprintf(b, `<path d="M%.1f %.1f l-4 %.1f h8 z" fill="%s"/>`+"\n", x, to, -head, stroke)
}

func addedTransferColor() color.NRGBA  { return element.Palette()[0] }
func copiedTransferColor() color.NRGBA { return element.Palette()[1] }

func formatHex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
