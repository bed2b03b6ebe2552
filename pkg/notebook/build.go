package notebook

import "lockstep/pkg/internal/buildid"

// BuildID returns an id of the sources that this kernel or program was built from, or
// "dev". A notebook and its workers must have the same id.
func BuildID() string { return buildid.ID }
