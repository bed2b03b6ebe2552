// Package comparison measures two programs alternately: it starts both sides of a
// comparison, sends each the same requests, and converts the answers to records.
package comparison
