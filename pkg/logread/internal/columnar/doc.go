// Package columnar writes tables of measured values as Parquet and as Arrow files.
//
// Rows arrive one at a time and are collected in groups of columns: a row group in
// Parquet, a record batch in Arrow. Texts repeat, so they are stored as numbers with
// a dictionary per column. An Arrow file has its dictionaries before the first row;
// therefore the rows are requested twice.
package columnar
