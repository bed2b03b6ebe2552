package logread

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// programLogs is the folder with the output of training programs that package textlog reads.
const programLogs = "internal/textlog/testdata/programs"

// TestProgramsAreRecognized: no format of tables, documents or events takes a file with the
// output of a training program.
func TestProgramsAreRecognized(t *testing.T) {
	want := map[string]string{
		"deepspeed.log": "DeepSpeed", "deepspeed1.log": "DeepSpeed",
		"huggingface.log": "Hugging Face Trainer", "huggingface5.log": "Hugging Face Trainer",
		"imagenet.log": "PyTorch ImageNet example", "imagenet2017.log": "PyTorch ImageNet example",
		"lightning.log": "Lightning bars", "lightning1.log": "Lightning bars",
		"megatron.log": "Megatron-LM", "megatron1.log": "Megatron-LM",
		"nanogpt.log": "nanoGPT", "nnunet.log": "nnU-Net", "nnunet1.log": "nnU-Net",
		"tfcnn.log": "tf_cnn_benchmarks", "timm.log": "timm", "torchvision.log": "torchvision reference", "tqdm.log": "tqdm bars",
	}
	found, _, err := Read(programLogs)
	check(t, err)
	got := map[string]string{}
	for _, r := range found {
		got[filepath.Base(r.File)] += r.Kind
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestDocListsPrograms: the package's documentation and FormatNames name every program.
func TestDocListsPrograms(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	check(t, err)
	found, _, err := Read(programLogs)
	check(t, err)
	kinds := map[string]bool{}
	for _, r := range found {
		kinds[r.Kind] = true
	}
	if len(kinds) < 11 {
		t.Fatalf("got only the kinds %v", slices.Sorted(maps.Keys(kinds)))
	}
	for kind := range kinds {
		if !strings.Contains(string(text), "\n//\t"+kind+" ") {
			t.Errorf("doc.go does not state what is read of %q", kind)
		}
		if !slices.Contains(FormatNames(), kind) {
			t.Errorf("FormatNames does not contain %q", kind)
		}
	}
}
