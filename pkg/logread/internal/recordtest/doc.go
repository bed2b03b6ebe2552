// Package recordtest helps the tests of formats: it checks what holds for every
// reader of package record ([Fuzz]), reads the fixtures of package logread as seeds
// of fuzz targets ([Seed]), and builds files of TensorBoard's events.
package recordtest
