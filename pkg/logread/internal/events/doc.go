// Package events reads TensorBoard's event files.
//
// A file is a sequence of records with checksums (events.go), each of which is a
// protobuf message (proto.go). [Parser] takes the content of a file in parts, so
// that package logread can follow a file that grows. Scalars become curves; all
// other records (graphs, images, histograms) are skipped.
//
// The files of a folder belong to one run: a run that was resumed leaves several. [Join] merges
// them (run.go), and turns tags that describe complete epochs into epochs.
package events
