// Package element has the parts that figures are composed of: axes and their
// ticks, lines, glyphs, bars, bands, error bars, legends, and the style that all
// of them share. They are plotters, tickers and glyphs of gonum/plot, and know
// nothing of studies: package figure gives them numbers and names.
package element
