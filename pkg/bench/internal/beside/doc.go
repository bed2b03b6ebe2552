// Package beside measures two programs in turns: it starts both sides of a comparison,
// asks each for the same work, and turns the answers into records.
package beside
