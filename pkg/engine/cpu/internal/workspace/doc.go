// Package workspace contains the memory that all operations of a loaded program share, and
// the statistics of batch norms that one operation computes for the next.
package workspace
