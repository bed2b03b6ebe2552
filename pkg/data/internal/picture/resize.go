package picture

import (
	"context"
	"image"

	"golang.org/x/image/draw"

	"lockstep/pkg/data/internal/scale"
)

// Resizer scales pictures to squares by bilinear interpolation.
type Resizer struct {
	edge   int
	from   image.Point
	scaler draw.Scaler // for pictures of size from; reused because it caches its weights
}

// NewResizer returns a resizer to squares with the given edge. It is fastest for pictures of the given height
// and width.
func NewResizer(edge, height, width int) *Resizer {
	return &Resizer{edge: edge, from: image.Pt(width, height), scaler: draw.BiLinear.NewScaler(edge, edge, width, height)}
}

// minCancelablePixels is the number of pixels from which on resizing can be canceled. Smaller
// pictures take less than about a tenth of a second.
const minCancelablePixels = 1 << 22

// Resize scales m to the square. If ctx is canceled, it returns the cause. The scaling of a large
// picture then goes on in a goroutine, because it cannot be stopped.
func (r *Resizer) Resize(ctx context.Context, m image.Image) (image.Image, error) {
	scale := func() image.Image {
		to := image.NewRGBA(image.Rect(0, 0, r.edge, r.edge))
		var scaler draw.Scaler = draw.BiLinear
		if m.Bounds().Size() == r.from {
			scaler = r.scaler
		}
		scaler.Scale(to, to.Bounds(), m, m.Bounds(), draw.Src, nil)
		return to
	}
	if size := m.Bounds().Size(); size.X*size.Y < minCancelablePixels {
		return scale(), nil
	}
	scaled := make(chan image.Image, 1)
	go func() { scaled <- scale() }()
	select {
	case to := <-scaled:
		return to, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// WriteRGBPlanes writes the red, green and blue planes of m to dst. 8-bit values are divided by 255.
// Transparent pixels become black.
func WriteRGBPlanes(dst []float32, m image.Image) {
	b := m.Bounds()
	rgba, ok := m.(*image.RGBA)
	if !ok {
		rgba = image.NewRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
		draw.Draw(rgba, rgba.Bounds(), m, b.Min, draw.Src)
	}
	n := b.Dx() * b.Dy()
	red, green, blue := dst[:n], dst[n:][:n], dst[2*n:][:n]
	k := 0
	for y := range b.Dy() {
		line := rgba.Pix[y*rgba.Stride:][:4*b.Dx()]
		for ; len(line) >= 4; line = line[4:] {
			red[k], green[k], blue[k] = scale.ByteToUnit[line[0]], scale.ByteToUnit[line[1]], scale.ByteToUnit[line[2]]
			k++
		}
	}
}

// InterleaveRGB converts red, green and blue planes to an image.RGBA.
func InterleaveRGB(planes []uint8, height, width int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	n := height * width
	for k := range n {
		to := m.Pix[4*k:][:4]
		to[0], to[1], to[2], to[3] = planes[k], planes[n+k], planes[2*n+k], 255
	}
	return m
}
