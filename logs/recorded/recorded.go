// Package recorded contains the run folders of this folder: small sweeps that were recorded on one
// machine. They are part of the lockstep command and of the kernel, so that they can be read and
// replayed where there is no checkout; README.md describes them. Package lockstep/pkg/runs finds
// them by the names recorded/NAME.
package recorded

import "embed"

// Files contains the run folders, NAME/RUN/run.json and NAME/RUN/epochs.csv.
//
//go:embed */*/run.json */*/epochs.csv
var Files embed.FS
