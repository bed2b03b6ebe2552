package figure

import (
	"bytes"
	"reflect"
	"testing"

	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot/font"

	"lockstep/pkg/figure/internal/element"
)

// figureFont returns the TrueType file of the figures' font.
func figureFont(t *testing.T) []byte {
	t.Helper()
	f := element.TextStyle(12).Font
	face := font.DefaultCache.Lookup(f, f.Size)
	var source bytes.Buffer
	_, err := face.Face.WriteSourceTo(nil, &source)
	check(t, err)
	return source.Bytes()
}

// TestReducedFont checks that the font in a PDF has the same outlines and widths as the complete font for
// each character that the PDF can show, also for those that are composed of others.
func TestReducedFont(t *testing.T) {
	source := figureFont(t)
	reduced, err := subsetFont(source)
	check(t, err)
	if len(reduced) > len(source)/3 {
		t.Errorf("%d of %d bytes", len(reduced), len(source))
	}
	all, err := sfnt.Parse(source)
	check(t, err)
	few, err := sfnt.Parse(reduced)
	check(t, err)
	var b sfnt.Buffer
	size := fixed.I(int(all.UnitsPerEm()))
	for _, r := range pdfCharacters() {
		x, err := all.GlyphIndex(&b, r)
		check(t, err)
		y, err := few.GlyphIndex(&b, r)
		check(t, err)
		want, err := all.LoadGlyph(&b, x, size, nil)
		check(t, err)
		want = append(sfnt.Segments(nil), want...)
		got, err := few.LoadGlyph(&b, y, size, nil)
		check(t, err)
		if x != y || !reflect.DeepEqual(append(sfnt.Segments(nil), got...), want) || len(want) == 0 && r != ' ' && r != 0xa0 && r != 0xad {
			t.Errorf("%q differs", r)
		}
	}
	other, err := few.GlyphIndex(&b, 'Ω')
	check(t, err)
	if outline, err := few.LoadGlyph(&b, other, size, nil); err == nil && len(outline) > 0 {
		t.Error("a character that no PDF shows is kept")
	}
	if sum := fontChecksum(reduced); sum != checksumTarget {
		t.Errorf("the checksum of the file is %#x, want %#x", sum, uint32(checksumTarget))
	}
	for _, damaged := range [][]byte{nil, source[:8], source[:100], source[:len(source)/2]} {
		if _, err := subsetFont(damaged); err == nil {
			t.Errorf("no error for the first %d bytes", len(damaged))
		}
	}
}

// TestSmallPDF checks the size of a figure for a column of a paper.
func TestSmallPDF(t *testing.T) {
	const most = 60_000
	for name, study := range fixtures(t) {
		f, err := Options{WidthInches: 3.5, HeightInches: 2.4}.Speedup(study)
		if err != nil {
			continue // the study has no speed-up
		}
		pdf, err := f.encode("pdf")
		check(t, err)
		if len(pdf) > most {
			t.Errorf("%s: %d bytes, want at most %d", name, len(pdf), most)
		}
	}
}
