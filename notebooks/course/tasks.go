// Package course contains the tasks of this folder's notebooks. They are part of the
// lockstep command and of the kernel, so that answers can be checked where there is no
// checkout; package lockstep/pkg/course describes their format.
package course

import "embed"

// Tasks contains the task files, NN-title.yaml.
//
//go:embed *.yaml
var Tasks embed.FS
