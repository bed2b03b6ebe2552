package suggest

import (
	"slices"
	"strings"
)

// setHeadings sets the headings of shapes that are rows of a table without words:
// the nearest of the three lines above the first row that has as many columns. A row of
// units is joined with the names above it.
func setHeadings(files []File, shapes []*shape) {
	for _, s := range shapes {
		if wordsIn(s.tokens) > 0 || len(s.values) < 2 {
			continue
		}
		at := s.places[0]
		lines := files[at.file].Lines
		for i := at.line - 1; i >= max(0, at.line-3); i-- {
			if isUnitRow(lines[i].Text) && i > 0 && strings.ContainsFunc(lines[i-1].Text, isLetter) {
				s.headings = s.headingsWithUnits(lines[i-1].Text, lines[i].Text)
				break
			}
			cells := headingCells(lines[i].Text, s.variants[0])
			if cells != nil {
				s.headings = cells
				break
			}
		}
	}
}

// isUnitRow reports whether each cell of a heading is in brackets, as in "[min]  [-]  [%]":
// the units of the names in the line above.
func isUnitRow(line string) bool {
	cells := strings.FieldsFunc(line, isCellBoundary)
	return len(cells) > 0 && !slices.ContainsFunc(cells, func(cell string) bool {
		return len(cell) < 2 || !strings.Contains("[(", cell[:1]) || !strings.Contains("])", cell[len(cell)-1:])
	})
}

// isCellBoundary reports whether c separates the cells of a row of units.
func isCellBoundary(c rune) bool { return strings.ContainsRune(" \t|#", c) }

// headingsWithUnits returns the cells of the line of names with the units of the line below
// it. The first column, which counts, may have no unit. It returns nil if the lines are not a
// heading of the rows, or if it is unknown to which names the units belong.
func (s *shape) headingsWithUnits(names, units string) []string {
	cells := headingCells(names, s.variants[0])
	found := strings.FieldsFunc(units, isCellBoundary)
	first := len(cells) - len(found)
	if first < 0 || first > 1 {
		return nil
	}
	for i, u := range found {
		cells[first+i] += " " + u
	}
	return cells
}

// headingCells returns the cells of a heading by slot of the rows, or nil if the
// line is not a heading of such rows.
func headingCells(line string, row spelling) []string {
	if !strings.ContainsFunc(line, isLetter) {
		return nil
	}
	split := func(text string) []string {
		if strings.Contains(text, "|") {
			return strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		}
		if strings.Contains(text, "\t") {
			return strings.Split(strings.TrimSpace(text), "\t")
		}
		return strings.Fields(text)
	}
	cells := split(line)
	rowCells := split(row.first)
	if len(cells) != len(rowCells) && !strings.ContainsAny(line, "|\t") { // names of several words
		cells = nil
		for part := range strings.SplitSeq(strings.TrimSpace(line), "  ") {
			if part = strings.TrimSpace(part); part != "" {
				cells = append(cells, part)
			}
		}
	}
	if len(cells) != len(rowCells) {
		return nil
	}
	var headings []string
	for i, cell := range rowCells {
		for k, t := range tokenize(strings.TrimSpace(cell), false) {
			if !t.isSlot() {
				continue
			}
			if k > 0 && i < len(cells) { // 1/10: the second number of a cell
				headings = append(headings, "")
				continue
			}
			headings = append(headings, strings.TrimSpace(cells[i]))
		}
	}
	return headings
}
