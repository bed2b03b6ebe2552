package runs

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

// Source states from where a property of a run is known. The constants are in the order of
// their precedence.
type Source string

// The sources of properties.
const (
	SourceUser       Source = "the user"         // an option such as --as, or lockstep-logs.yaml
	SourceContent    Source = "the content"      // run.json, or what the program itself has logged
	SourceConfig     Source = "a configuration"  // a file of settings or a job script beside the log
	SourceCommand    Source = "the command line" // of the launcher that started the program
	SourceFolderName Source = "the name of a folder"
	SourceFileName   Source = "the name of the file"
	SourceRest       Source = "elimination" // nothing states it, and one value remains, such as one worker
)

// IsAssumed reports whether a property from this source is an assumption: a name may mean
// something else.
func (s Source) IsAssumed() bool {
	return s == SourceFolderName || s == SourceFileName || s == SourceRest
}

// Origin states from where one property of a run is known.
type Origin struct {
	Source Source
	Detail string // the text that states the property, such as the name "4GPU"; may be empty
}
