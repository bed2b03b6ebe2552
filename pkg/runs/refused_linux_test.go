package runs

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const secret = "root:x:0:0:a secret of somebody else\n"

// unsafeFile describes a file that must not be opened: put creates it at path, and the error
// contains refused.
type unsafeFile struct {
	name    string
	put     func(path string) error
	refused string
}

// unsafeFiles returns the kinds of unsafe files. It writes the secret file to which their
// links lead.
func unsafeFiles(t *testing.T, root string) []unsafeFile {
	t.Helper()
	beside := filepath.Join(root, "secret")
	check(t, os.WriteFile(beside, []byte(secret), 0o600))
	return []unsafeFile{
		{"pipe", func(path string) error { return syscall.Mkfifo(path, 0o644) }, "a named pipe, not a file"},
		{"link", func(path string) error { return os.Symlink(beside, path) }, "a link out of the folder"},
		{"relative link", func(path string) error { return os.Symlink("../secret", path) }, "a link out of the folder"},
		{"zero", func(path string) error { return os.Symlink("/dev/zero", path) }, "a link out of the folder"},
		{"folder", func(path string) error { return os.Mkdir(path, 0o755) }, "a folder, not a file"},
		{"folder link", func(path string) error { return os.Symlink("checkpoints", path) }, "a folder, not a file"},
	}
}

// soon fails if f does not return: a named pipe would block it for ever.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

// refusedRun writes a run and replaces one of its files by an unsafe file.
func refusedRun(t *testing.T, root string, u unsafeFile, file string) (dir string) {
	t.Helper()
	dir = filepath.Join(root, strings.ReplaceAll(u.name+"-"+file, " ", "-"))
	writeSample(t, dir)
	check(t, os.MkdirAll(filepath.Join(dir, "checkpoints"), 0o755))
	if err := os.Remove(filepath.Join(dir, file)); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	check(t, u.put(filepath.Join(dir, file)))
	return dir
}

func TestReadRefusesUnsafeFiles(t *testing.T) {
	root := t.TempDir()
	for _, u := range unsafeFiles(t, root) {
		for _, file := range []string{epochsFile, loadFileName, classesFile, "steps-1.jsonl"} {
			t.Run(u.name+" "+file, func(t *testing.T) {
				dir := refusedRun(t, root, u, file)
				tail := NewTail(dir)
				for _, read := range []func() (Run, error){
					func() (Run, error) { return Read(dir) },
					func() (Run, error) { _, err := tail.Read(); return tail.Run(), err },
					func() (Run, error) { _, err := tail.Read(); return tail.Run(), err }, // again, as a follower does
				} {
					var run Run
					var err error
					soon(t, "read", func() { run, err = read() })
					check(t, err)
					text := ""
					for _, p := range run.Problems {
						text += p.String() + "\n"
					}
					if !strings.Contains(text, filepath.Join(dir, file)+": ") || !strings.Contains(text, u.refused) || strings.Contains(text, "root:x") {
						t.Errorf("problems are %q, want one that says %q", text, u.refused)
					}
					if strings.Count(text, u.refused) != 1 {
						t.Errorf("the file is refused more than once: %q", text)
					}
					if file != epochsFile && len(run.Epochs) != 2 {
						t.Errorf("got %d epochs, want 2", len(run.Epochs))
					}
				}
				if file == "steps-1.jsonl" {
					soon(t, "read steps", func() {
						_, _, _, err := ReadSteps(dir, 1)
						wantError(t, err, u.refused)
						_, _, err = ReadStepParts(dir, 1)
						wantError(t, err, u.refused)
					})
				}
			})
		}
		t.Run(u.name+" run.json", func(t *testing.T) {
			dir := refusedRun(t, root, u, infoFile)
			soon(t, "read", func() {
				_, err := Read(dir)
				wantError(t, err, u.refused)
				_, err = NewTail(dir).Read()
				wantError(t, err, u.refused)
			})
		})
		t.Run(u.name+" owners", func(t *testing.T) {
			dir := refusedRun(t, root, u, OwnersFile)
			soon(t, "read owners", func() {
				_, _, err := Owners(dir)
				wantError(t, err, u.refused)
				_, _, err = OwnerOf(dir)
				wantError(t, err, u.refused)
			})
		})
	}
}

// TestResumeRefusesUnsafeFiles: the target of a link is neither read nor written.
func TestResumeRefusesUnsafeFiles(t *testing.T) {
	root := t.TempDir()
	for _, u := range unsafeFiles(t, root) {
		for _, file := range []string{infoFile, epochsFile, loadFileName, classesFile, logFile, OwnersFile, "steps-1.jsonl"} {
			t.Run(u.name+" "+file, func(t *testing.T) {
				dir := refusedRun(t, root, u, file)
				soon(t, "resume", func() {
					w, _, err := Resume(dir)
					if err == nil {
						check(t, w.Finish(StatusDone, nil))
					}
					wantError(t, err, u.refused)
				})
				text, err := os.ReadFile(filepath.Join(root, "secret"))
				check(t, err)
				equal(t, string(text), secret)
			})
		}
	}
}

// TestCreateRefusesLinks: a folder without a run may hold links that somebody
// else has put there.
func TestCreateRefusesLinks(t *testing.T) {
	root := t.TempDir()
	beside := filepath.Join(root, "secret")
	check(t, os.WriteFile(beside, []byte(secret), 0o600))
	for target, refused := range map[string]string{beside: "a link out of the folder", filepath.Join(root, "new"): "a link to a file that does not exist"} {
		dir := filepath.Join(root, "run-"+filepath.Base(target))
		check(t, os.Mkdir(dir, 0o755))
		check(t, os.Symlink(target, filepath.Join(dir, logFile)))
		_, err := Create(dir, sampleInfo())
		wantError(t, err, refused)
	}
	text, err := os.ReadFile(beside)
	check(t, err)
	equal(t, string(text), secret)
	if _, err := os.Lstat(filepath.Join(root, "new")); !os.IsNotExist(err) {
		t.Errorf("the target of the link was made: %v", err)
	}
}

// TestReadRefusesWorkers: readers loop over the workers of a run.
func TestReadRefusesWorkers(t *testing.T) {
	dir := t.TempDir()
	for _, workers := range []string{"2000000000", "-1"} {
		check(t, os.WriteFile(filepath.Join(dir, infoFile), []byte(`{"schema":1,"workers":`+workers+`}`), 0o644))
		_, err := Read(dir)
		wantError(t, err, "got "+workers+" workers")
	}
}
