package record

// Sequel is the relation of a series of numbers, such as those of the epochs or steps of a log, to the
// series before it.
type Sequel int

// The relations.
const (
	AnotherRun Sequel = iota // the numbers start again
	Resumed                  // the numbers go back: the later values replace the earlier ones
	Continued                // the numbers follow those before
	AfterGap                 // the numbers follow, but some are missing
)

// Follow returns the relation of numbers that start at next to numbers from first to last, which
// usually differ by interval. resumes is set if the log states that the run resumes an earlier one.
// This is the one rule for all formats.
func Follow(first, last, interval, next int64, resumes bool) Sequel {
	switch {
	case next <= first && !resumes:
		return AnotherRun
	case next <= last:
		return Resumed
	case next <= last+max(interval, 1):
		return Continued
	}
	return AfterGap
}
