package notebook

import "lockstep/pkg/internal/buildid"

// BuildID names the sources that this kernel or program was built from, or is
// "dev". A notebook and its workers must have the same.
func BuildID() string { return buildid.ID }
