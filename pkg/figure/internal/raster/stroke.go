package raster

import "math"

// pixelPoint is a point of an image, in pixels from the top left corner.
type pixelPoint struct{ x, y float64 }

// polygonList is a list of polygons or lines, stored one after the other.
type polygonList struct {
	dots []pixelPoint
	ends []int // end of each polygon in dots
}

// clear removes all polygons, but keeps the allocated memory for reuse.
func (s *polygonList) clear() { s.dots, s.ends = s.dots[:0], s.ends[:0] }

func (s *polygonList) endPolygon() { s.ends = append(s.ends, len(s.dots)) }

func (s *polygonList) forEachPolygon(f func([]pixelPoint)) {
	start := 0
	for _, end := range s.ends {
		f(s.dots[start:end])
		start = end
	}
}

// stroker converts lines of a given width to polygons: one rectangle per segment and a fan at each
// bend. All polygons have the same orientation and overlap only inside the line, so that their
// added coverage shows no seams.
type stroker struct {
	half float64 // half of the line's width, in pixels
	to   *polygonList
}

// minSegmentPixels is the smallest length, in pixels, of a drawn segment. Bends that move the
// line's edge by less are not drawn either.
const minSegmentPixels = 1.0 / 16

// strokePolyline converts a line, with flat ends and round joins, and appends its polygons.
func (s *stroker) strokePolyline(l []pixelPoint) {
	var before pixelPoint // the normal of the previous segment
	from, joined := l[0], false
	for _, to := range l[1:] {
		dx, dy := to.x-from.x, to.y-from.y
		length := math.Hypot(dx, dy)
		if length < minSegmentPixels {
			continue
		}
		n := pixelPoint{-dy / length * s.half, dx / length * s.half}
		if joined {
			s.joinSegments(from, before, n)
		}
		s.to.dots = append(s.to.dots,
			pixelPoint{from.x + n.x, from.y + n.y}, pixelPoint{to.x + n.x, to.y + n.y}, pixelPoint{to.x - n.x, to.y - n.y}, pixelPoint{from.x - n.x, from.y - n.y})
		s.to.endPolygon()
		from, before, joined = to, n, true
	}
}

// joinSegments fills the outer side of the join of two segments at a point. n0 and n1 are the
// normals of the segments.
func (s *stroker) joinSegments(at, n0, n1 pixelPoint) {
	if math.Abs(n0.x-n1.x)+math.Abs(n0.y-n1.y) < minSegmentPixels {
		return
	}
	turn := math.Atan2(n0.x*n1.y-n0.y*n1.x, n0.x*n1.x+n0.y*n1.y)
	start := math.Atan2(n0.y, n0.x)
	if turn > 0 { // to the left: the outer side is opposite to the normals
		start += math.Pi
	}
	const step = math.Pi / 8
	steps := int(math.Ceil(math.Abs(turn) / step))
	if turn > 0 { // the same orientation as the rectangles
		start, turn = start+turn, -turn
	}
	s.to.dots = append(s.to.dots, at)
	for i := range steps + 1 {
		sin, cos := math.Sincos(start + turn*float64(i)/float64(steps))
		s.to.dots = append(s.to.dots, pixelPoint{at.x + s.half*cos, at.y + s.half*sin})
	}
	s.to.endPolygon()
}

// dashLines splits lines into dashes. The lengths in dashes alternate between dashes and gaps;
// offset is the start within this pattern. Without dashes, it returns lines.
func dashLines(lines *polygonList, dashes []float64, offset float64) *polygonList {
	total := 0.0
	for _, d := range dashes {
		total += d
	}
	if len(dashes)%2 == 1 { // an odd number of lengths is repeated, as in SVG
		dashes = append(dashes, dashes...)
		total *= 2
	}
	if !(total > minSegmentPixels) {
		return lines
	}
	out := &polygonList{dots: make([]pixelPoint, 0, 2*len(lines.dots))}
	lines.forEachPolygon(func(l []pixelPoint) {
		at := 0 // index in dashes
		left := math.Mod(offset, total)
		if left < 0 {
			left += total
		}
		for left >= dashes[at] {
			left -= dashes[at]
			at = (at + 1) % len(dashes)
		}
		left = dashes[at] - left // rest of the current dash or gap
		from, begin := l[0], len(out.dots)
		out.dots = append(out.dots, from)
		for _, to := range l[1:] {
			length := math.Hypot(to.x-from.x, to.y-from.y)
			for done := 0.0; ; {
				rest := length - done
				if rest <= left {
					left -= rest
					out.dots = append(out.dots, to)
					break
				}
				done += left
				end := pixelPoint{from.x + (to.x-from.x)*done/length, from.y + (to.y-from.y)*done/length}
				if at%2 == 0 {
					out.dots = append(out.dots, end)
					out.endPolygon()
				} else {
					out.dots = out.dots[:begin]
				}
				begin = len(out.dots)
				out.dots = append(out.dots, end)
				at = (at + 1) % len(dashes)
				left = dashes[at]
			}
			from = to
		}
		if at%2 == 0 {
			out.endPolygon()
		} else {
			out.dots = out.dots[:begin]
		}
	})
	return out
}
