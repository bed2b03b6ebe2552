package notebook

import "lockstep/pkg/internal/buildid"

// BuildID returns an ID of the sources from which this kernel or program was built, or "dev" if
// it is unknown. A notebook and its workers must have the same ID.
func BuildID() string { return buildid.ID }

// Version returns the version of Lockstep, such as "0.1.0-dev".
func Version() string { return buildid.Version }
