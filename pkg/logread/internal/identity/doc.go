// Package identity decides what identifies each run: its series, numbers of workers and nodes, rank,
// seed, batch and model, the parts of which it consists, and which runs are repeats of each other.
//
// The packages names, pattern, launchline, merge and repeats, and content.go, only return evidence
// (record.Evidence). The decisions are here:
//
//   - strengths (fields.go) decides which evidence of a property counts;
//   - parts (parts.go) decides which files and parts of files are one run;
//   - separate.go decides which runs are repeats, by the differences of package repeats.
package identity
