// Package content opens a log file of any encoding: it decompresses gzip, zstd, xz and bzip2,
// converts UTF-16 to UTF-8, and refuses what must not be read, such as pickles.
//
// A compressed file may be damaged, truncated, or designed to fill a disk. Its content ends
// there, and the report of the file says why.
package content
