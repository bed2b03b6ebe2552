package figure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/image/font/opentype"
	"golang.org/x/image/font/sfnt"
	"gonum.org/v1/plot/font"
)

// pdfFonts contains the smaller fonts that PDF files embed, by name.
var pdfFonts sync.Map // of *opentype.Font

// subsetFontForPDF returns f reduced to the glyphs that gonum's PDF canvas can show, because the
// complete font would make up most of the file. It returns f if the font cannot be reduced.
func subsetFontForPDF(f font.Face) font.Face {
	name := f.Name()
	if small, ok := pdfFonts.Load(name); ok {
		f.Face, _ = small.(*opentype.Font)
		return f
	}
	var source bytes.Buffer
	if _, err := f.Face.WriteSourceTo(nil, &source); err != nil {
		return f
	}
	reduced, err := subsetFont(source.Bytes())
	if err != nil {
		return f
	}
	small, err := opentype.Parse(reduced)
	if err != nil {
		return f
	}
	pdfFonts.Store(name, small)
	f.Face = small
	return f
}

// pdfCharacters returns the characters of Windows code page 1252, the encoding of text in gonum's PDF.
func pdfCharacters() []rune {
	all := []rune("€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ")
	for r := ' '; r <= '~'; r++ {
		all = append(all, r)
	}
	for r := rune(0xa0); r <= 0xff; r++ { // Latin-1
		all = append(all, r)
	}
	return all
}

// Layout of TrueType files (OpenType specification 1.9, The OpenType Font File and the chapters of the
// tables).
const (
	ttfHeader      = 12
	ttfRecord      = 16 // of the table directory: tag, checksum, offset, length
	headAdjustment = 8  // offset of the file's checksum in head
	headLocaFormat = 50 // offset in head: 0 if loca has half offsets of 16 bits, 1 if it has 32 bits
	postHeader     = 32
	noGlyphNames   = 0x00030000 // version of post
	checksumTarget = 0xb1b0afba
)

// subsetFont returns a TrueType font that has only the outlines of pdfCharacters. Glyphs keep their
// numbers, so the other tables stay valid. It leaves out tables for layout, which PDF readers do
// not use.
func subsetFont(source []byte) ([]byte, error) {
	tables, err := readFontTables(source)
	if err != nil {
		return nil, err
	}
	parsed, err := sfnt.Parse(source)
	if err != nil {
		return nil, err
	}
	var buffer sfnt.Buffer
	keep := map[int]bool{0: true}
	for _, r := range pdfCharacters() {
		g, err := parsed.GlyphIndex(&buffer, r)
		if err != nil {
			return nil, err
		}
		keep[int(g)] = true
	}
	if err := removeUnusedOutlines(tables, parsed.NumGlyphs(), keep); err != nil {
		return nil, err
	}
	if post := tables["post"]; len(post) >= postHeader {
		tables["post"] = binary.BigEndian.AppendUint32(nil, noGlyphNames)
		tables["post"] = append(tables["post"], post[4:postHeader]...)
	}
	return writeFontTables(tables), nil
}

// readFontTables returns the tables of a TrueType file that a PDF reader uses, by tag.
func readFontTables(source []byte) (map[string][]byte, error) {
	if len(source) < ttfHeader {
		return nil, errors.New("read font: the file is too short")
	}
	tables := map[string][]byte{}
	for i := range int(binary.BigEndian.Uint16(source[4:])) {
		record := ttfHeader + i*ttfRecord
		if record+ttfRecord > len(source) {
			return nil, errors.New("read font: the table directory is too short")
		}
		tag := string(source[record : record+4])
		from, size := int(binary.BigEndian.Uint32(source[record+8:])), int(binary.BigEndian.Uint32(source[record+12:]))
		if from+size > len(source) {
			return nil, fmt.Errorf("read font: table %s is too short", tag)
		}
		if strings.Contains("cmap cvt  fpgm glyf head hhea hmtx loca maxp name OS/2 post prep", tag) {
			tables[tag] = slices.Clone(source[from : from+size])
		}
	}
	return tables, nil
}

// removeUnusedOutlines removes the outlines of all glyphs except those in keep and the glyphs that
// they are composed of.
func removeUnusedOutlines(tables map[string][]byte, glyphs int, keep map[int]bool) error {
	glyf, loca, head := tables["glyf"], tables["loca"], tables["head"]
	if len(head) <= headLocaFormat+1 {
		return errors.New("reduce font: it has no table head")
	}
	long := head[headLocaFormat+1] == 1
	size := 2
	if long {
		size = 4
	}
	if len(loca) < (glyphs+1)*size {
		return errors.New("reduce font: table loca is too short")
	}
	offset := func(i int) int {
		if long {
			return int(binary.BigEndian.Uint32(loca[4*i:]))
		}
		return 2 * int(binary.BigEndian.Uint16(loca[2*i:]))
	}
	outline := func(i int) []byte {
		if i < 0 || i >= glyphs || offset(i) > offset(i+1) || offset(i+1) > len(glyf) {
			return nil
		}
		return glyf[offset(i):offset(i+1)]
	}
	pending := slices.Collect(maps.Keys(keep))
	for len(pending) > 0 {
		g := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for _, part := range glyphParts(outline(g)) {
			if !keep[part] {
				keep[part] = true
				pending = append(pending, part)
			}
		}
	}
	var kept, offsets []byte
	for i := range glyphs + 1 {
		if long {
			offsets = binary.BigEndian.AppendUint32(offsets, uint32(len(kept))) //nolint:gosec // at most the length of glyf
		} else {
			offsets = binary.BigEndian.AppendUint16(offsets, uint16(len(kept)/2)) //nolint:gosec // at most the length of glyf
		}
		if keep[i] {
			kept = padToFourBytes(append(kept, outline(i)...))
		}
	}
	tables["glyf"], tables["loca"] = kept, offsets
	return nil
}

// glyphParts returns the numbers of the glyphs that a composite glyph consists of, or nil for a
// simple glyph.
func glyphParts(outline []byte) []int {
	const (
		header     = 10
		wordArgs   = 1 << 0
		oneScale   = 1 << 3
		more       = 1 << 5
		twoScales  = 1 << 6
		fourScales = 1 << 7
	)
	if len(outline) < header || int16(binary.BigEndian.Uint16(outline)) >= 0 { //nolint:gosec // negative if it is composite
		return nil
	}
	var parts []int
	for at := header; at+4 <= len(outline); {
		flags := binary.BigEndian.Uint16(outline[at:])
		parts = append(parts, int(binary.BigEndian.Uint16(outline[at+2:])))
		at += 4 + 2
		if flags&wordArgs != 0 {
			at += 2
		}
		switch {
		case flags&oneScale != 0:
			at += 2
		case flags&twoScales != 0:
			at += 4
		case flags&fourScales != 0:
			at += 8
		}
		if flags&more == 0 {
			break
		}
	}
	return parts
}

func writeFontTables(tables map[string][]byte) []byte {
	tags := slices.Sorted(maps.Keys(tables))
	if head := tables["head"]; len(head) >= headAdjustment+4 {
		binary.BigEndian.PutUint32(head[headAdjustment:], 0)
	}
	power, log := 1, 0
	for 2*power <= len(tags) {
		power, log = 2*power, log+1
	}
	out := []byte{0, 1, 0, 0}
	for _, n := range []int{len(tags), power * ttfRecord, log, (len(tags) - power) * ttfRecord} {
		out = binary.BigEndian.AppendUint16(out, uint16(n)) //nolint:gosec // 13 tables at most
	}
	at, adjustment := ttfHeader+len(tags)*ttfRecord, 0
	for _, tag := range tags {
		if tag == "head" {
			adjustment = at + headAdjustment
		}
		out = append(out, tag...)
		for _, n := range []int{int(fontChecksum(tables[tag])), at, len(tables[tag])} {
			out = binary.BigEndian.AppendUint32(out, uint32(n)) //nolint:gosec // a font is smaller than 4 GiB
		}
		at += len(padToFourBytes(slices.Clone(tables[tag])))
	}
	for _, tag := range tags {
		out = padToFourBytes(append(out, tables[tag]...))
	}
	if adjustment > 0 {
		binary.BigEndian.PutUint32(out[adjustment:], checksumTarget-fontChecksum(out))
	}
	return out
}

func padToFourBytes(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// fontChecksum returns the sum of the 32-bit words of b.
func fontChecksum(b []byte) uint32 {
	sum := uint32(0)
	for b = padToFourBytes(slices.Clone(b)); len(b) > 0; b = b[4:] {
		sum += binary.BigEndian.Uint32(b)
	}
	return sum
}
