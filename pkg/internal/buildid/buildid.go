// Package buildid names the sources that a binary was built from.
//
// The kernel and the lockstep command are two binaries that must agree on every
// type that passes between them: a notebook starts workers that are the
// command. kernels/build links the same id into both, and whoever starts a
// worker compares the two and refuses a mismatch, which beats a strange error
// an hour later.
//
//	if theirs != buildid.ID {
//		return fmt.Errorf("start worker %s: it was built from other sources ...", path)
//	}
package buildid

// Dev is the ID of a binary that kernels/build did not link, such as the result of a plain "go
// build" or a test binary.
const Dev = "dev"

// ID is the build ID of the running binary: 16 hexadecimal digits of a hash over go.mod, go.sum
// and the sources of pkg/, kernels/ and environment/sites/, or Dev. It is a variable because the
// linker sets it (-X lockstep/pkg/internal/buildid.ID=...). The program does not assign to it.
var ID = Dev

// Version is the version of Lockstep.
const Version = "0.1.0-dev"
