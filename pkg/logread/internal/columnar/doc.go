// Package columnar writes tables of measured values as Parquet and as Arrow files.
//
// Rows come one at a time and are gathered in groups of columns: a row group of
// Parquet, a record batch of Arrow. Texts repeat, so they are stored as numbers in
// a dictionary per column. Arrow wants the whole dictionary before the first row;
// therefore the rows are asked for twice.
package columnar
