package train

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"lockstep/pkg/data"
)

// Picture draws the image and the mask of training sample i side by side, with the name of the image and
// the place of the tile. It returns an error unless the samples are images with masks.
func (s Samples) Picture(i int) (image.Image, error) {
	img, mask, err := readSample(s.Train, i, 1)
	if err != nil {
		return nil, err
	}
	shape := s.Train.ImageShape()
	if target := s.Train.TargetShape(); len(shape) != 3 || len(target) != 3 {
		return nil, fmt.Errorf("draw sample %d: got an image of shape %v and a target of shape %v, want an image with a mask", i, shape, target)
	}
	return drawSideBySide(s.Train.SampleName(i), shape[1], shape[2], labeledPlane{"image", img}, labeledPlane{"mask", mask})
}

// readSample reads sample i of ds into the beginning of buffers for batch samples.
func readSample(ds data.Dataset, i, batch int) (img, mask []float32, err error) {
	if i < 0 || i >= ds.Len() {
		return nil, nil, fmt.Errorf("draw sample %d: the data set has samples 0 to %d", i, ds.Len()-1)
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	n, m := numElements(is), numElements(ts)
	img, mask = make([]float32, batch*n), make([]float32, batch*m)
	return img, mask, ds.Get(i, img[:n], mask[:m])
}

// labeledPlane is a plane of height×width values from 0 (black) to 1 (white), and what it shows.
type labeledPlane struct {
	label  string
	values []float32
}

// Sizes of a picture in pixels.
const (
	minPictureHeight = 256 // smaller planes are enlarged to at least this height, by a whole factor
	pictureGap       = 4   // between two planes
	pictureText      = 13  // size of the font
	pictureTextRow   = 20  // height of a row of text
)

// drawSideBySide draws planes side by side, each below its label, and below them the name of the sample.
func drawSideBySide(name string, height, width int, planes ...labeledPlane) (image.Image, error) {
	scale := max(1, minPictureHeight/height)
	step := width*scale + pictureGap
	out := image.NewGray(image.Rect(0, 0, len(planes)*step-pictureGap, height*scale+2*pictureTextRow))
	for i := range out.Pix {
		out.Pix[i] = 255
	}
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
	for k, p := range planes {
		left := k * step
		write(p.label, left, 0)
		for y := range height * scale {
			for x := range width * scale {
				v := min(max(float64(p.values[y/scale*width+x/scale]), 0), 1)
				out.SetGray(left+x, pictureTextRow+y, color.Gray{Y: uint8(math.Round(255 * v))})
			}
		}
	}
	for font.MeasureString(face, name).Ceil() > out.Rect.Dx() { // the end of a path says more than its beginning
		short := []rune(strings.TrimPrefix(name, "…"))
		if len(short) < 2 {
			break
		}
		name = "…" + string(short[1:])
	}
	write(name, 0, pictureTextRow+height*scale)
	return out, nil
}
