package logread

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// task is one run folder or one file to read.
type task struct {
	path   string
	named  bool // the caller named it, so it may be a pipe
	link   bool // a link; it is followed unless report.Skipped is set
	folder bool // a run folder
	size   int64
	// goroutines is the number of goroutines that may read the file. It is not
	// used for run folders.
	goroutines int
	lines      []*template.Template // templates of lines in text logs
	rules      *parsedRules         // that apply to the file; nil if none do
	columns    []table.Mapping      // mappings of the columns of tables
	report     record.Report
	// excerptBytes is the number of bytes of content that are read; 0 means all.
	excerptBytes int64

	realPath string  // absolute path without links
	inside   []*task // content of the folder to which a link leads
	followed bool    // a link to a folder whose content is in inside
}

// A lister lists the files and run folders in and below several paths, in
// natural order. Only regular files and folders are opened, not pipes or
// devices. A link is followed if its target is not read otherwise, so that
// nothing is read twice and link cycles do no harm.
type lister struct {
	// otherProgram reports for run folders, by path, whether their program is
	// another one than Lockstep. It has only those whose run.json was read.
	otherProgram map[string]bool

	lists     []taskList
	links     []*task           // links in the order in which they were found
	following bool              // all paths are listed, and links are being followed
	folders   map[string]string // the paths of the listed folders, by real path
	runs      map[string]string // the paths of the run folders among them, by real path
}

// taskList is what was found in and below one path.
type taskList struct {
	root  string // real path
	tasks []*task
}

// newLister returns a lister. otherProgram is the field of this name, which the
// caller may keep for the next lister, or nil.
func newLister(otherProgram map[string]bool) *lister {
	if otherProgram == nil {
		otherProgram = map[string]bool{}
	}
	return &lister{otherProgram: otherProgram, folders: map[string]string{}, runs: map[string]string{}}
}

// listTasks lists the files and run folders in and below each path.
func listTasks(paths ...string) ([][]*task, error) {
	l := newLister(nil)
	for _, path := range paths {
		if err := l.add(path); err != nil {
			return nil, err
		}
	}
	return l.finish(), nil
}

// add lists path, which may be a link, and what is below it. Links below it are
// followed by finish.
func (l *lister) add(path string) error {
	var list taskList
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		dir := filepath.Dir(path)
		if base := filepath.Base(path); base == "run.json" || base == "epochs.csv" && runs.IsRunFolder(dir) { // stands for its folder
			path = dir
		} else {
			list.tasks = []*task{{path: path, named: true, size: info.Size(), realPath: realPath(path), report: record.Report{Path: path}}}
			l.lists = append(l.lists, list)
			return nil
		}
	}
	if err == nil {
		list.root = realPath(path)
		list.tasks, err = l.listFolder(nil, path, list.root)
	}
	l.lists = append(l.lists, list)
	return err
}

// realPath returns the absolute path without links, or path if it cannot be
// determined.
func realPath(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err == nil {
		resolved, err = filepath.Abs(resolved)
	}
	if err != nil {
		return path
	}
	return resolved
}

// listFolder appends the content of the folder dir to tasks, or dir itself if
// it is a run folder. place is the real path of dir.
func (l *lister) listFolder(tasks []*task, dir, place string) ([]*task, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return tasks, err
	}
	l.folders[place] = dir
	isRun := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "run.json" || e.Name() == "epochs.csv" }) && runs.IsRunFolder(dir)
	if isRun {
		t := newTask(dir, place)
		t.folder, l.runs[place] = true, dir
		tasks = append(tasks, t)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return runs.NaturalCompare(a.Name(), b.Name()) })
	for _, e := range entries {
		if e.Name() == runs.OwnersFile || e.Name() == RulesFile { // a lock, which may be older than the run; no logs
			continue
		}
		if !isRun || l.isReadInRun(dir, e) {
			tasks = l.listEntry(tasks, e, filepath.Join(dir, e.Name()), filepath.Join(place, e.Name()))
		}
	}
	return tasks, nil
}

// isReadInRun reports whether an entry of the run folder dir is read in addition
// to the files of the run: the traces of a profile and, if the run is that of
// another program or run.json is missing, everything else.
func (l *lister) isReadInRun(dir string, e fs.DirEntry) bool {
	if isTrace, err := filepath.Match("trace-*.json", e.Name()); err == nil && isTrace && e.Type().IsRegular() {
		return true
	}
	return !runs.IsRunFile(e.Name()) && !strings.HasPrefix(e.Name(), ".") && l.isOtherProgram(dir)
}

// isOtherProgram reports whether the run folder dir is that of another program
// than Lockstep, or has no run.json.
func (l *lister) isOtherProgram(dir string) bool {
	other, known := l.otherProgram[dir]
	if known {
		return other
	}
	info, err := runs.ReadInfo(dir)
	if err != nil {
		_, err := os.Lstat(filepath.Join(dir, "run.json"))
		return errors.Is(err, fs.ErrNotExist)
	}
	l.otherProgram[dir] = len(info.Command) > 0
	return l.otherProgram[dir]
}

// newTask returns a task for path, whose real path is place.
func newTask(path, place string) *task {
	return &task{path: path, realPath: place, report: record.Report{Path: path}}
}

// listEntry appends one entry of a folder, or the content of a folder, to tasks.
func (l *lister) listEntry(tasks []*task, e fs.DirEntry, path, place string) []*task {
	t := newTask(path, place)
	switch {
	case strings.HasPrefix(e.Name(), "."):
		t.report.Skipped = "it is hidden: its name begins with a dot"
	case e.IsDir():
		return l.listBelow(tasks, t)
	case e.Type()&fs.ModeSymlink != 0:
		t.link = true
		l.links = append(l.links, t)
	case !e.Type().IsRegular():
		t.report.Skipped = "it is neither a file nor a folder"
	default:
		if info, err := e.Info(); err == nil {
			t.size = info.Size()
		}
	}
	return append(tasks, t)
}

// listBelow appends the content of the folder t to tasks, or t itself if the
// folder is not read.
func (l *lister) listBelow(tasks []*task, t *task) []*task {
	before, isListed := l.folders[t.realPath]
	run := l.findRunAbove(t.realPath)
	switch {
	case isListed && l.following:
		t.report.Skipped = "the folder is read as " + before
	case run != "" && runs.IsRunFolder(t.path):
		t.report.Skipped = "it is a run folder in the run folder " + run + "; name it to read it"
	default:
		below, err := l.listFolder(tasks, t.path, t.realPath)
		if err == nil {
			return below
		}
		t.report.Skipped = "the folder cannot be read"
		t.report.AddProblem(0, "%v", err)
	}
	return append(tasks, t)
}

// findRunAbove returns the path of the listed run folder that contains place, a
// real path, or "" if there is none.
func (l *lister) findRunAbove(place string) string {
	for dir := filepath.Dir(place); ; dir = filepath.Dir(dir) {
		if run, ok := l.runs[dir]; ok {
			return run
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// finish follows the links and returns the tasks of each path. Links to folders
// are followed before links to files, because the files may be in these folders.
func (l *lister) finish() [][]*task {
	l.following = true
	var toFiles []*task
	for i := 0; i < len(l.links); i++ { // following a link may find further links
		if !l.followToFolder(l.links[i]) {
			toFiles = append(toFiles, l.links[i])
		}
	}
	lists := make([][]*task, len(l.lists))
	files := map[string]string{} // the paths of the listed files, by real path
	for i, list := range l.lists {
		lists[i] = flatten(nil, list.tasks)
		for _, t := range lists[i] {
			if len(toFiles) > 0 && !t.link && !t.folder && t.report.Skipped == "" {
				files[t.realPath] = t.path
			}
		}
	}
	for _, t := range toFiles {
		if before, ok := files[t.realPath]; ok {
			t.report.Skipped = "it is a link to a file that is read as " + before
			continue
		}
		files[t.realPath] = t.path
	}
	return lists
}

// followToFolder follows the link t if it leads to a folder. It reports whether
// it does, or cannot be followed; otherwise t is a link to a file.
func (l *lister) followToFolder(t *task) bool {
	info, err := os.Stat(t.path)
	if err != nil {
		t.report.Skipped = "it is a link that leads nowhere"
		if !errors.Is(err, fs.ErrNotExist) {
			t.report.Skipped = fmt.Sprintf("it is a link that cannot be followed: %v", err)
		}
		return true
	}
	t.realPath = realPath(t.path)
	before, isListed := l.folders[t.realPath]
	run := l.findRunAbove(t.realPath)
	switch {
	case isListed:
		t.report.Skipped = "it is a link to a folder that is read as " + before
	case run != "":
		t.report.Skipped = "it is a link into the run folder " + run + ", which is read"
	case info.Mode().IsRegular():
		t.size = info.Size()
		return false
	case !info.IsDir():
		t.report.Skipped = "it is neither a file nor a folder"
	case l.containsRoot(t.realPath):
		t.report.Skipped = "it is a link to a folder that contains the folder that is read"
	default:
		t.inside = l.listBelow(nil, t)
		t.followed = t.report.Skipped == ""
	}
	return true
}

// containsRoot reports whether the folder place, a real path, contains one of the
// folders that the caller named.
func (l *lister) containsRoot(place string) bool {
	return slices.ContainsFunc(l.lists, func(list taskList) bool {
		rest, err := filepath.Rel(place, list.root)
		return err == nil && filepath.IsLocal(rest)
	})
}

// flatten appends the tasks to all, and the content of a followed folder in place
// of its link.
func flatten(all, tasks []*task) []*task {
	for _, t := range tasks {
		if t.followed {
			all = flatten(all, t.inside)
		} else {
			all = append(all, t)
		}
	}
	return all
}
