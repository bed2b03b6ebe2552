package runs

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/english"
)

// Property names a property that identifies a run. It is the key of Run.Origins.
type Property string

// The properties that identify a run.
const (
	PropertyWorkers Property = "workers"
	PropertyNodes   Property = "nodes"
	PropertyRank    Property = "rank" // of the worker that wrote the log
	PropertySeed    Property = "seed"
	PropertySeries  Property = "series"
	PropertyBatch   Property = "batch" // per worker or global
	PropertyModel   Property = "model"
)

// Properties returns the properties in the order in which messages list them.
func Properties() []Property {
	return []Property{PropertyWorkers, PropertyNodes, PropertyRank, PropertySeed, PropertySeries, PropertyBatch, PropertyModel}
}

// Source states where a property was found. The constants are in the order of precedence.
type Source string

// The sources of properties.
const (
	SourceUser       Source = "the user"            // an option such as --as, or lockstep-logs.yaml
	SourceContent    Source = "the content"         // run.json, or what the program itself has logged
	SourceConfig     Source = "a configuration"     // a file of settings or a job script beside the log
	SourceCommand    Source = "the command line"    // of the launcher that started the program
	SourceRunName    Source = "the name of the run" // in a table or the head of its columns
	SourceFolderName Source = "the name of a folder"
	SourceFileName   Source = "the name of the file"
)

// IsAssumed reports whether a property from this source is an assumption: a name may mean other things.
func (s Source) IsAssumed() bool {
	return s == SourceRunName || s == SourceFolderName || s == SourceFileName
}

// Origin states where one property of a run was found.
type Origin struct {
	Source Source
	Detail string // the text that states the property, such as the name "4GPU"; may be empty
}

// String returns the source with its detail, such as `the name of the folder "4GPU"`.
func (o Origin) String() string {
	switch {
	case o.Detail == "":
		return string(o.Source)
	case o.Source == SourceFolderName:
		return fmt.Sprintf("the name of the folder %q", o.Detail)
	case o.Source == SourceFileName, o.Source == SourceRunName:
		return fmt.Sprintf("%s %q", o.Source, o.Detail)
	}
	return fmt.Sprintf("%s (%s)", o.Source, o.Detail)
}

// Precedence returns the position of the source in the order of precedence. The source with the
// lowest number is used.
func (s Source) Precedence() int {
	return slices.Index([]Source{SourceUser, SourceContent, SourceConfig, SourceCommand, SourceRunName, SourceFolderName, SourceFileName}, s)
}

// Assumptions returns one sentence, without a period, for each property and source of assumptions
// (see Source.IsAssumed), such as "workers of 4 runs assumed from file names", in the order of the
// properties and then of the sources. The result is nil if nothing was assumed.
func Assumptions(all []Run) []string {
	var sentences []string
	for _, property := range Properties() {
		for _, source := range []struct {
			source Source
			words  string
		}{
			{SourceRunName, "from run names"},
			{SourceFolderName, "from folder names"},
			{SourceFileName, "from file names"},
		} {
			n := 0
			for _, run := range all {
				if run.Origins[property].Source == source.source {
					n++
				}
			}
			if n > 0 {
				sentences = append(sentences, string(property)+" of "+english.FormatCount(n, "run")+" assumed "+source.words)
			}
		}
	}
	return sentences
}
