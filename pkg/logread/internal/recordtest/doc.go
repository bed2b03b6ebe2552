// Package recordtest helps the tests of formats: it checks the properties that every
// reader must have ([CheckFormat]), reads the fixtures of package logread as seeds
// of fuzz targets ([AddSeeds]), and builds TensorBoard event files.
package recordtest
