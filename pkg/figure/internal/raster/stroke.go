package raster

import "math"

// dot is a place in pixels, from the top left.
type dot struct{ x, y float64 }

// shape is polygons, one after the other.
type shape struct {
	dots []dot
	ends []int // of each polygon, in dots
}

// clear makes it empty, and keeps its room.
func (s *shape) clear() { s.dots, s.ends = s.dots[:0], s.ends[:0] }

// end ends a polygon.
func (s *shape) end() { s.ends = append(s.ends, len(s.dots)) }

// each calls f with each polygon.
func (s *shape) each(f func([]dot)) {
	start := 0
	for _, end := range s.ends {
		f(s.dots[start:end])
		start = end
	}
}

// stroker makes polygons of lines that have a width: a rectangle a segment and
// a fan at each bend, all of the same sense of rotation, which touch and
// overlap only inside the line, so that coverage that adds up shows no seams.
type stroker struct {
	half float64 // of the width, pixels
	to   *shape
}

// shortest is the length of a segment below which a bend is not drawn, pixels.
const shortest = 1.0 / 16

// add strokes a line with flat ends and round joins.
func (s *stroker) add(l []dot) {
	var before dot // the normal of the last segment
	from, joined := l[0], false
	for _, to := range l[1:] {
		dx, dy := to.x-from.x, to.y-from.y
		length := math.Hypot(dx, dy)
		if length < shortest {
			continue
		}
		n := dot{-dy / length * s.half, dx / length * s.half}
		if joined {
			s.bend(from, before, n)
		}
		s.to.dots = append(s.to.dots,
			dot{from.x + n.x, from.y + n.y}, dot{to.x + n.x, to.y + n.y}, dot{to.x - n.x, to.y - n.y}, dot{from.x - n.x, from.y - n.y})
		s.to.end()
		from, before, joined = to, n, true
	}
}

// bend fills the outer side between two segments that meet at a point, whose
// normals are given.
func (s *stroker) bend(at, n0, n1 dot) {
	if math.Abs(n0.x-n1.x)+math.Abs(n0.y-n1.y) < shortest {
		return
	}
	turn := math.Atan2(n0.x*n1.y-n0.y*n1.x, n0.x*n1.x+n0.y*n1.y)
	start := math.Atan2(n0.y, n0.x)
	if turn > 0 { // to the left: the outer side is the other one
		start += math.Pi
	}
	const step = math.Pi / 8
	steps := int(math.Ceil(math.Abs(turn) / step))
	if turn > 0 { // the other way round, as the rectangles go
		start, turn = start+turn, -turn
	}
	s.to.dots = append(s.to.dots, at)
	for i := range steps + 1 {
		sin, cos := math.Sincos(start + turn*float64(i)/float64(steps))
		s.to.dots = append(s.to.dots, dot{at.x + s.half*cos, at.y + s.half*sin})
	}
	s.to.end()
}

// dashed cuts lines into dashes, which alternate with gaps; the first begins
// so far before the line. Without dashes the lines are whole.
func dashed(lines *shape, dashes []float64, offset float64) *shape {
	total := 0.0
	for _, d := range dashes {
		total += d
	}
	if len(dashes)%2 == 1 { // a dash and a gap are as long
		dashes = append(dashes, dashes...)
		total *= 2
	}
	if !(total > shortest) {
		return lines
	}
	out := &shape{dots: make([]dot, 0, 2*len(lines.dots))}
	lines.each(func(l []dot) {
		at := 0 // of dashes
		left := math.Mod(offset, total)
		if left < 0 {
			left += total
		}
		for left >= dashes[at] {
			left -= dashes[at]
			at = (at + 1) % len(dashes)
		}
		left = dashes[at] - left // of this dash or gap
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
				end := dot{from.x + (to.x-from.x)*done/length, from.y + (to.y-from.y)*done/length}
				if at%2 == 0 {
					out.dots = append(out.dots, end)
					out.end()
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
			out.end()
		} else {
			out.dots = out.dots[:begin]
		}
	})
	return out
}
