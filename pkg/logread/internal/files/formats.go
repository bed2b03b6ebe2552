package files

import (
	"slices"

	"lockstep/pkg/logread/internal/events"
	"lockstep/pkg/logread/internal/ipynb"
	"lockstep/pkg/logread/internal/jsonlog"
	"lockstep/pkg/logread/internal/launchline"
	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/textlog"
	"lockstep/pkg/logread/internal/trace"
)

// Formats returns the formats of other programs' logs in the order in which
// they are tried.
func Formats(columns []table.Mapping) []record.Format {
	return slices.Concat([]record.Format{events.Format(), ipynb.Format(cellFormats(columns)), trace.Format(), launchline.Format()}, jsonlog.Formats(), table.MappedFormats(columns), programfile.Formats(), table.DocumentFormats(columns), []record.Format{table.Format(columns), textlog.Format()})
}

// cellFormats returns the formats of the text that a cell of a notebook has written: tables
// with a header, and lines.
func cellFormats(columns []table.Mapping) []record.Format {
	isOther := func(f record.Format) bool { return f.Document || f.Name == programfile.PlainKind }
	return slices.Concat(table.MappedFormats(columns), slices.DeleteFunc(programfile.Formats(), isOther), []record.Format{table.Format(columns), textlog.Format()})
}
