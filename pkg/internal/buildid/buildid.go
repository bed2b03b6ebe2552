// Package buildid names the sources that a binary was built from.
//
// A notebook's kernel starts workers that are the lockstep command: two binaries that must
// agree on every type that passes between them. kernels/build links the same ID into both,
// and a program that starts a worker refuses a mismatch, which beats a strange error an
// hour later.
//
//	if theirs != buildid.ID {
//		return fmt.Errorf("start worker %s: it was built from other sources ...", path)
//	}
package buildid

// Dev is the ID of a binary that was not built with kernels/build, such as a test binary or the
// result of a plain "go build".
const Dev = "dev"

// ID is the build ID of the running binary: 16 hexadecimal digits of a hash over go.mod, go.sum
// and the sources of pkg/, kernels/ and environment/sites/, or Dev. Only the linker sets it
// (-X lockstep/pkg/internal/buildid.ID=...).
var ID = Dev

// Version is the version of Lockstep.
const Version = "0.1.0-dev"
