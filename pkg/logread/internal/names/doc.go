// Package names finds what the names of files and folders say about a run: its number of
// workers, its number of nodes, its seed, or a number that may be a rank.
//
// Only explicit words count: 4GPU, workers-8, np16, n2-s7, nodes4, seed3. Other numbers, such as
// those of a model (r50), a machine type (g5.12xlarge), a job or a date, mean nothing.
package names
