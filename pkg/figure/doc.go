// Package figure draws a [scaling.Study].
//
// Each constructor validates its input and returns a [Figure], or an error that names the
// missing data. A notebook shows a figure that is the value of a cell's last line. Save
// writes it to a file; without an extension, it writes an image in each format, a table
// and a caption. Table contains the numbers that are drawn, the same as those of
// `lockstep scaling`.
//
//	figure.Speedup(study)
//	figure.Options{Scale: figure.Log2, Series: []string{"PyTorch native"}}.Speedup(study)
//
// Axes have units. The colors are Okabe and Ito's, and every series also has its own
// glyph and dashes, so that figures can be read with any color vision and in print. The
// legend covers no data: it is above the plot, or below or beside it if a small image has
// more space there. An image of the width of a paper's column, Options{WidthInches: 3.5,
// HeightInches: 2.4}, has smaller text and fewer ticks. A size at which the figure would
// be illegible is a SizeError. Captions say how the values were computed and from how
// many runs.
//
// Every figure is a method of Options, so that the package is larger than others. Each file
// has the figures of one kind. Common code is in internal/element (the parts of a plot) and
// internal/raster (the canvas and encoder for PNG images).
package figure
