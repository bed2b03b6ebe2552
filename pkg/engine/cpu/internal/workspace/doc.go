// Package workspace holds the memory that all operations of a loaded program share,
// and the statistics of batch norms that one operation takes for the next.
package workspace
