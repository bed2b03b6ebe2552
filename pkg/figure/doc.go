// Package figure draws a [scaling.Study].
//
// Each constructor validates its input and returns a [Figure], or an error
// that says what is missing. A notebook shows a figure that is the value of a
// cell's last line by itself; Save writes it to a file, or without extension to
// a picture of each kind, a table and a caption. The numbers that are drawn are
// in Table, and are the same as those of `lockstep scaling`.
//
//	figure.Speedup(study)
//	figure.Options{Scale: figure.Log2, Series: []string{"PyTorch native"}}.Speedup(study)
//
// Axes carry their units. Colours are those of Okabe and Ito, and every series
// also has its own glyph and dash, so that figures can be read with any colour
// vision and in print. The legend is beside the plot, where it covers
// nothing: above it, or where a small picture has more room for it. A picture
// of the size of a paper's column, Options{WidthInches: 3.5, HeightInches: 2.4},
// has smaller text and fewer ticks; one that nobody could read is a SizeError. Captions
// say how a value came about and of how many runs it is.
//
// The package has one file per kind of figure, and each is a method of Options;
// that is why it is larger than other packages. What kinds of figures have in
// common is elsewhere: internal/element has the parts of a plot, internal/raster
// the canvas and the encoder of PNG pictures.
package figure
