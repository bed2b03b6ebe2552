//go:build notebook

// This file lets the functions in link.go be declared without a body.
