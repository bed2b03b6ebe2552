// Package sites contains the site profiles that Lockstep ships. They are part of the
// lockstep command, which therefore needs no checkout. README.md explains the keys;
// package lockstep/pkg/launch/site reads them.
package sites

import "embed"

// Files contains the shipped profiles: NAME.yaml is the profile of the site NAME.
//
//go:embed *.yaml
var Files embed.FS
