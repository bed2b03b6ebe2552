package cifar

import (
	"os"
	"testing"
)

// FuzzBatches: any bytes give an error, or pictures of CIFAR-10 with classes of
// it, in both versions.
func FuzzBatches(f *testing.F) {
	record := make([]byte, recordSize)
	record[0] = 3
	f.Add(record)
	f.Add(append(record, record[:9]...))
	text, err := os.ReadFile("../../testdata/cifar-10-batches-py/data_batch_1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range []func([]byte) ([][]uint8, []int32, error){parseBinaryBatch, parsePythonBatch} {
			images, classes, err := read(text)
			if err != nil {
				continue
			}
			if len(images) == 0 || len(images) != len(classes) {
				t.Fatalf("%d pictures of %d classes", len(images), len(classes))
			}
			for i, m := range images {
				if len(m) != pixelCount || classes[i] < 0 || classes[i] >= ClassCount {
					t.Fatalf("picture %d has %d bytes and class %d", i, len(m), classes[i])
				}
			}
		}
	})
}
