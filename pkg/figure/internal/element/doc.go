// Package element contains the parts of figures: axes and their ticks, lines, glyphs, bars, bands,
// error bars, legends, and their common style. They implement gonum/plot's plotters, tickers and
// glyphs, and do not depend on studies: package figure passes numbers and names.
package element
