// Package columnartest reads Parquet and Arrow files with the formats' own
// libraries, for tests of what package columnar writes.
package columnartest
