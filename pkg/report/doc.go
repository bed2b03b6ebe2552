// Package report writes the results of a study as one page, for a web browser or as a
// PDF.
//
// A [Report] is made from a scaling.Study. Its page contains, in this order: conclusions
// in sentences; each series at its largest worker count; the results at every worker
// count; further analyses (fits, comparisons, bottleneck, overhead of communication,
// cost, where a step's time goes); every figure that the study has data for, with its
// caption; the runs; the files that were read, with the lines that could not be used; and
// the derivation of each number at the top, down to file and line. Each of these numbers
// links to its derivation.
//
// The page is one self-contained file: it uses no network and no scripts, and includes
// the figures as SVG. Writing it again for the same logs gives the same bytes, because it
// contains no dates except those in the logs. It follows the browser's light or dark
// color scheme, and prints on A4.
//
//	study, err := scaling.Read("logs/unet2d-cells")
//	r, err := report.New(study, report.Options{Title: "U-Net on two cores"})
//	err = r.Save(ctx, "report.html") // or report.pdf, which needs chromium
package report
