// Package report writes what a study shows as one page: for a web browser, or
// as a PDF for paper.
//
// A [Report] is made of a scaling.Study and holds, in this order: the verdict
// in sentences; each series at its most workers; the results of every number of
// workers; what else was computed (fits, comparisons, bottleneck, overhead of
// communication, cost, where a step's time goes); every figure that the study
// has numbers for, with its caption; the runs; what was read, and what of it
// could not be used; and how each number at the top came about, down to the
// file and the line, which the number links to.
//
// The page is one file that needs nothing else: no network, no script, figures
// as SVG in it. It is the same, byte for byte, for the same logs: no date is in
// it that the logs do not have. It follows the browser's light or dark scheme
// and prints on A4.
//
//	study, err := scaling.Read("logs/unet2d-cells")
//	r, err := report.New(study, report.Options{Title: "U-Net on two cores"})
//	err = r.Save(ctx, "report.html") // or report.pdf, which needs chromium
package report
