package logread

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"lockstep/pkg/runs"
)

// TestLinksAreFollowedOnce reads a folder whose links lead to files and folders
// elsewhere, to files that are read anyway, to parents, in a cycle and nowhere.
func TestLinksAreFollowedOnce(t *testing.T) {
	root := t.TempDir()
	dir, other := filepath.Join(root, "logs"), filepath.Join(root, "scratch")
	write(t, root, map[string]string{
		"logs/log_2.csv": twoRows, "scratch/run/log_4.csv": twoRows, "scratch/run/sub/log_8.csv": twoRows,
		"scratch/alone.csv": twoRows, "scratch/.hidden.csv": twoRows, "notes/log_32.csv": twoRows,
	})
	makePipe(t, filepath.Join(other, "pipe"))
	for link, target := range map[string]string{
		"a_16.csv":           "zfolder/log_4.csv", // the folder is followed first
		"log_16.csv":         filepath.Join(other, "alone.csv"),
		"log_64.csv":         filepath.Join(other, "alone.csv"),
		"latest.csv":         "log_2.csv",
		"log_128.csv":        filepath.Join(other, ".hidden.csv"),
		"pipe.log":           filepath.Join(other, "pipe"),
		"zero.log":           "/dev/zero",
		"nowhere.log":        "missing",
		"loop":               "loop",
		"self":               ".",
		"up":                 root,
		"zfolder":            filepath.Join(other, "run"),
		"zsame":              filepath.Join(other, "run"),
		"zsub":               filepath.Join(other, "run", "sub"),
		"../scratch/run/top": dir,
	} {
		check(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	logs, reports := explained(t, dir)
	var names []string
	for _, r := range logs.Runs {
		names = append(names, strings.TrimPrefix(r.Dir, dir+"/"))
	}
	if d := cmp.Diff([]string{"log_2.csv", "log_16.csv", "log_128.csv", "zfolder/log_4.csv", "zfolder/sub/log_8.csv"}, names); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for name, want := range map[string]string{
		"a_16.csv": "it is a link to a file that is read as " + dir + "/zfolder/log_4.csv", "log_64.csv": "read as " + dir + "/log_16.csv", "latest.csv": "read as " + dir + "/log_2.csv",
		"pipe.log": "neither a file nor a folder", "zero.log": "neither a file nor a folder", "nowhere.log": "a link that leads nowhere", "loop": "cannot be followed",
		"self": "a folder that is read as " + dir, "up": "a folder that contains the folder that is read", "zsame": "a folder that is read as " + dir + "/zfolder",
		"zsub": "a folder that is read as " + dir + "/zfolder/sub", "zfolder/top": "a folder that is read as " + dir,
	} {
		if r := reports[name]; !strings.Contains(r.Skipped, want) {
			t.Errorf("%s: %s, expected %q", name, r, want)
		}
	}
	if len(logs.Problems) > 0 {
		t.Errorf("problems %v", logs.Problems)
	}
	two, err := Options{}.Read(t.Context(), dir, filepath.Join(other, "run"))
	check(t, err)
	if len(two.Runs) != 5 { // zfolder is not followed: its target was named
		t.Errorf("%d runs of two paths: %v", len(two.Runs), two.Reports)
	}
	f, err := Follow(t.Context(), dir)
	check(t, err)
	if !f.Next() || len(f.Runs()) != len(names) {
		t.Errorf("the follower has %d runs, %v", len(f.Runs()), f.Err())
	}
}

// TestLinksToRunFolders reads run folders that are links, and links into run
// folders.
func TestLinksToRunFolders(t *testing.T) {
	root := t.TempDir()
	w, err := runs.Create(filepath.Join(root, "elsewhere", "ddp-n2-s1"), runs.Info{Study: "s", Series: "ddp", Workers: 2})
	check(t, err)
	check(t, w.Finish(runs.StatusDone, nil))
	dir := filepath.Join(root, "logs")
	check(t, os.Mkdir(dir, 0o755))
	for link, target := range map[string]string{"a": "../elsewhere/ddp-n2-s1", "b": "../elsewhere/ddp-n2-s1", "latest.log": "a/out.log"} {
		check(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	logs, reports := explained(t, dir)
	if len(logs.Runs) != 1 || logs.Runs[0].Dir != filepath.Join(dir, "a") || logs.Runs[0].Info.Workers != 2 {
		t.Errorf("runs %+v", logs.Runs)
	}
	if why := reports["latest.log"].Skipped; !strings.Contains(why, "a link into the run folder "+dir+"/a, which is read") {
		t.Errorf("latest.log: %s", why)
	}
}

// TestEpochsFileOfAnotherProgram checks that an epochs.csv without run.json does
// not hide the other files of its folder.
func TestEpochsFileOfAnotherProgram(t *testing.T) {
	for name, c := range map[string]struct {
		epochs   string
		problems int
	}{
		"of another program":   {"epoch,loss\n1,0.5\n", 1}, // its number of workers is unknown
		"of a lost run folder": {"epoch,seconds,samples,padding_samples\n1,2.5,100,0\n", 1},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"epochs.csv": c.epochs, "log_2.csv": twoRows, "sub/log_4.csv": twoRows})
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		var names []string
		for _, r := range logs.Runs {
			if r.Dir != filepath.Join(dir, "epochs.csv") {
				names = append(names, strings.TrimPrefix(r.Dir, dir+"/"))
			}
		}
		if d := cmp.Diff([]string{"log_2.csv", "sub/log_4.csv"}, names); d != "" || len(logs.Problems) != c.problems {
			t.Errorf("%s: (-want +got)\n%s%v", name, d, logs.Problems)
		}
	}
}

func makePipe(t *testing.T, path string) {
	t.Helper()
	check(t, syscall.Mkfifo(path, 0o600))
}
