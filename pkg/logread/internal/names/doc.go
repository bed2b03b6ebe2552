// Package names finds what the names of files and folders show about a run: its workers and nodes,
// its seed, a number that may be a rank, its series, and the words and numbers by which
// it differs from other runs. It returns evidence and decides nothing.
//
// Only explicit words count: 4GPU, workers-8, np16, n2-s7, nodes4, seed3. Other numbers, such as
// those of a model (r50), a machine type (g5.12xlarge), a job, a date or a numbered title
// (10-gpu-basics), mean nothing.
package names
