package table

import (
	"slices"

	"lockstep/pkg/logread/internal/record"
)

// Formats returns the formats in the order in which they are tried. mappings are those of
// the user. To add a format, add one entry here and a file with its functions.
func Formats(mappings []Mapping) []record.Format {
	all := []record.Format{
		{Name: benchyKind, Recognizes: isBenchyJSON, Read: readBenchyJSON, Document: true},
		{Name: huggingFaceKind, Recognizes: isHuggingFace, Read: readHuggingFace, Document: true},
		{Name: studyKind, Recognizes: isStudyLog, Read: readStudyLog},
		{Name: sacctKind, Recognizes: isSacct, Read: readSacct},
		{Name: hparamsKind, Recognizes: isHparams, Read: readHparams, Document: true},
		{Name: mlflowMetricKind, Recognizes: isMLflowMetric, Read: readMLflowMetric},
		{Name: mlflowSettingKind, Recognizes: isMLflowSetting, Read: readMLflowSetting, Document: true},
		{Name: PlainKind, Recognizes: isPlainLossLog, Read: readPlainLossLog},
		{Name: tableKind, Recognizes: isTable(mappings), Read: readTable(mappings)},
	}
	if len(mappings) > 0 { // they count more than what is known about a file
		all = slices.Insert(all, 0, record.Format{Name: tableKind, Recognizes: hasMappedColumn(mappings), Read: readTable(mappings)})
	}
	return all
}
