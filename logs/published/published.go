// Package published contains the tables of this folder: results that papers, tutorials and
// courses published. They are part of the lockstep command and of the kernel, so that they
// can be read where there is no checkout; README.md describes them. Package
// lockstep/pkg/runs finds them by the names published/NAME.csv.
package published

import "embed"

// Files contains the tables, NAME.csv.
//
//go:embed *.csv
var Files embed.FS
