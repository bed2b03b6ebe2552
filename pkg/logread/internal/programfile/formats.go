package programfile

import "lockstep/pkg/logread/internal/record"

// Formats returns the formats in the order in which they are tried. To add a format, add one
// entry here and a file with its functions.
func Formats() []record.Format {
	return []record.Format{
		{Name: benchyKind, Recognizes: isBenchyJSON, Read: readBenchyJSON, Document: true},
		{Name: huggingFaceKind, Recognizes: isHuggingFace, Read: readHuggingFace, Document: true},
		{Name: rowsKind, Recognizes: func(_ string, head []byte) bool { return IsRows(head) }, Read: readRows},
		{Name: studyKind, Recognizes: isStudyLog, Read: readStudyLog},
		{Name: sacctKind, Recognizes: isSacct, Read: readSacct},
		{Name: hparamsKind, Recognizes: isHparams, Read: readHparams, Document: true},
		{Name: mlflowMetricKind, Recognizes: isMLflowMetric, Read: readMLflowMetric},
		{Name: mlflowSettingKind, Recognizes: isMLflowSetting, Read: readMLflowSetting, Document: true},
		{Name: PlainKind, Recognizes: isPlainLossLog, Read: readPlainLossLog},
	}
}
