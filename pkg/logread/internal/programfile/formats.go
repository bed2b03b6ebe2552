// Package programfile reads files whose form a program fixes: the JSON documents of benchy and
// Hugging Face, the tables of the U-Net study and of Slurm's accounting, the file store of
// MLflow, YAML configurations, and lines with a step and a loss. Package table reads tables
// whose columns only their header states.
//
// Each format has a file, which begins with an example or a reference, and one entry in the table of
// [Formats]. The first format that recognizes a file reads it. Rows are read one at a time, documents
// at once. A row that cannot be used is a problem with its line number; the others are read.
package programfile

import "lockstep/pkg/logread/internal/record"

// Formats returns the formats in the order in which they are tried.
func Formats() []record.Format {
	return []record.Format{
		{Name: benchyKind, Recognizes: isBenchyJSON, Read: readBenchyJSON, Document: true},
		{Name: huggingFaceKind, Recognizes: isHuggingFace, Read: readHuggingFace, Document: true},
		{Name: tidyCSVKind, Recognizes: func(_ string, head []byte) bool { return IsTidyCSV(head) }, Read: readTidyCSV},
		{Name: studyKind, Recognizes: isStudyLog, Read: readStudyLog},
		{Name: sacctKind, Recognizes: isSacct, Read: readSacct},
		{Name: hparamsKind, Recognizes: isHparams, Read: readHparams, Document: true},
		{Name: mlflowMetricKind, Recognizes: isMLflowMetric, Read: readMLflowMetric},
		{Name: mlflowSettingKind, Recognizes: isMLflowSetting, Read: readMLflowSetting, Document: true},
		{Name: PlainKind, Recognizes: isPlainLossLog, Read: readPlainLossLog},
	}
}
