package train

import (
	"fmt"
	"image"
	"math"
	"slices"
	"strings"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"lockstep/pkg/data"
)

// Picture draws the image and the mask of training sample i side by side, with the image's name and
// the position of the tile. It returns an error unless the samples are images with masks.
func (s Samples) Picture(i int) (image.Image, error) {
	img, mask, err := readSample(s.Train, i, 1)
	if err != nil {
		return nil, err
	}
	shape := s.Train.ImageShape()
	if target := s.Train.TargetShape(); len(shape) != 3 || len(target) != 3 {
		return nil, fmt.Errorf("draw sample %d: got an image of shape %v and a target of shape %v, want an image with a mask", i, shape, target)
	}
	return SideBySide(s.Train.SampleName(i), Panel{"image", newImage(img, shape)}, Panel{"mask", s.newMask(mask, shape)})
}

// readSample reads sample i of ds. The returned buffers have room for batch samples; the sample is
// the first.
func readSample(ds data.Dataset, i, batch int) (img, mask []float32, err error) {
	if i < 0 || i >= ds.Len() {
		return nil, nil, fmt.Errorf("draw sample %d: the data set has samples 0 to %d", i, ds.Len()-1)
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	n, m := numElements(is), numElements(ts)
	img, mask = make([]float32, batch*n), make([]float32, batch*m)
	return img, mask, ds.Get(i, img[:n], mask[:m])
}

// Panel is one image, with its label, in a picture of several images of the same size.
type Panel struct {
	Label string
	Image image.Image
}

func newGrayPanel(label string, values []float32, height, width int) Panel {
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = uint8(math.Round(255 * min(max(float64(values[i]), 0), 1)))
	}
	return Panel{label, m}
}

// Sizes of a picture in pixels.
const (
	minPictureHeight = 256 // smaller planes are enlarged to at least this height, by a whole factor
	pictureGap       = 4   // between two planes
	pictureText      = 13  // size of the font
	pictureTextRow   = 20  // height of a row of text
)

// SideBySide draws panels side by side, each with its label above, and the name of the sample below
// them.
func SideBySide(name string, panels ...Panel) (image.Image, error) {
	size := panels[0].Image.Bounds().Size()
	scale := max(1, minPictureHeight/size.Y)
	step := size.X*scale + pictureGap
	bounds := image.Rect(0, 0, len(panels)*step-pictureGap, size.Y*scale+2*pictureTextRow)
	var out draw.Image = image.NewGray(bounds)
	if slices.ContainsFunc(panels, func(p Panel) bool { _, gray := p.Image.(*image.Gray); return !gray }) {
		out = image.NewRGBA(bounds)
	}
	draw.Draw(out, bounds, image.White, image.Point{}, draw.Src)
	regular, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("draw sample: %w", err)
	}
	const dotsPerPoint = 72 // sizes are in pixels
	face, err := opentype.NewFace(regular, &opentype.FaceOptions{Size: pictureText, DPI: dotsPerPoint})
	if err != nil {
		return nil, fmt.Errorf("draw sample: %w", err)
	}
	write := func(text string, left, top int) {
		const descent = 5
		d := font.Drawer{Dst: out, Src: image.Black, Face: face, Dot: fixed.P(left, top+pictureTextRow-descent)}
		d.DrawString(text)
	}
	for k, p := range panels {
		left := k * step
		write(p.Label, left, 0)
		to := image.Rect(left, pictureTextRow, left+size.X*scale, pictureTextRow+size.Y*scale)
		draw.NearestNeighbor.Scale(out, to, p.Image, p.Image.Bounds(), draw.Src, nil)
	}
	for font.MeasureString(face, name).Ceil() > bounds.Dx() { // the end of a path says more than its beginning
		short := []rune(strings.TrimPrefix(name, "…"))
		if len(short) < 2 {
			break
		}
		name = "…" + string(short[1:])
	}
	write(name, 0, pictureTextRow+size.Y*scale)
	return out, nil
}
