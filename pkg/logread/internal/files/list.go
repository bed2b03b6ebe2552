package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/logread/internal/programfile"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/rules"
	"lockstep/pkg/logread/internal/table"
	"lockstep/pkg/logread/internal/template"
	"lockstep/pkg/runs"
)

// Task is one run folder or one file to read.
type Task struct {
	Path    string
	Folder  bool // a run folder
	Size    int64
	Lines   []*template.Template  // templates of lines in text logs
	Rules   *rules.Rules          // that apply to the file; nil if none do
	Columns []table.ColumnMapping // mappings of the columns of tables
	Report  record.Report
	// ExcerptBytes is the number of bytes of content that are read; 0 means all.
	ExcerptBytes int64

	named bool // the caller named it, so it may be a pipe
	link  bool // a link; it is followed unless Report.Skipped is set

	realPath string  // absolute path without links
	inside   []*Task // content of the folder to which a link leads
	followed bool    // a link to a folder whose content is in inside
}

// Lister lists the files and run folders in and below several paths, in natural order, but no
// pipes or devices. A link is followed if its target is not read otherwise, so that
// nothing is read twice and link cycles do no harm.
type Lister struct {
	// otherProgram maps each run folder whose run.json was read to whether a program other than
	// Lockstep wrote the folder.
	otherProgram map[string]bool

	lists     []taskList
	links     []*Task           // links in the order in which they were found
	following bool              // all paths are listed, and links are being followed
	folders   map[string]string // the paths of the listed folders, by real path
	runs      map[string]string // the paths of the run folders among them, by real path
}

type taskList struct {
	root  string // real path
	tasks []*Task
}

// NewLister returns a lister. otherProgram caches which run folders another program wrote; the
// caller may pass it to the next lister.
func NewLister(otherProgram map[string]bool) *Lister {
	return &Lister{otherProgram: otherProgram, folders: map[string]string{}, runs: map[string]string{}}
}

// List lists the files and run folders in and below each path.
func List(paths ...string) ([][]*Task, error) {
	l := NewLister(map[string]bool{})
	for _, path := range paths {
		if err := l.Add(path); err != nil {
			return nil, err
		}
	}
	return l.Finish(), nil
}

// Add lists path and everything below it. path may be a link; Finish follows the links below it.
func (l *Lister) Add(path string) error {
	var list taskList
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		dir, base := filepath.Dir(path), filepath.Base(path)
		if base != "run.json" && (base != "epochs.csv" || !runs.IsRunFolder(dir)) {
			list.tasks = []*Task{{Path: path, named: true, Size: info.Size(), realPath: realPath(path), Report: record.Report{Path: path}}}
			l.lists = append(l.lists, list)
			return nil
		}
		path = dir // for which the file stands
	}
	if err == nil {
		list.root = realPath(path)
		list.tasks, err = l.listFolder(nil, path, list.root)
	}
	l.lists = append(l.lists, list)
	return err
}

// realPath returns the absolute path without links, or path on an error.
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

// listFolder appends to tasks the content of dir, or dir itself if it is a run folder.
// place is the real path of dir.
func (l *Lister) listFolder(tasks []*Task, dir, place string) ([]*Task, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return tasks, err
	}
	l.folders[place] = dir
	isRun := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "run.json" || e.Name() == "epochs.csv" }) && runs.IsRunFolder(dir)
	if isRun {
		t := newTask(dir, place)
		t.Folder, l.runs[place] = true, dir
		tasks = append(tasks, t)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return runs.NaturalCompare(a.Name(), b.Name()) })
	for _, e := range entries {
		if e.Name() == runs.OwnersFile || e.Name() == rules.FileName { // a lock, which may be older than the run; no logs
			continue
		}
		if !isRun || l.isExtraRunFile(dir, e) {
			tasks = l.listEntry(tasks, e, filepath.Join(dir, e.Name()), filepath.Join(place, e.Name()))
		}
	}
	return tasks, nil
}

// isExtraRunFile reports whether an entry of the run folder dir is read in addition to the run's own files:
// the traces of a profile, and everything if another program wrote the run or run.json is missing.
func (l *Lister) isExtraRunFile(dir string, e fs.DirEntry) bool {
	if isTrace, err := filepath.Match("trace-*.json", e.Name()); err == nil && isTrace && e.Type().IsRegular() {
		return true
	}
	return !runs.IsRunFile(e.Name()) && !strings.HasPrefix(e.Name(), ".") && l.isFromOtherProgram(dir)
}

// isFromOtherProgram reports whether a program other than Lockstep wrote the run folder dir, or
// run.json is missing.
func (l *Lister) isFromOtherProgram(dir string) bool {
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

func newTask(path, place string) *Task {
	return &Task{Path: path, realPath: place, Report: record.Report{Path: path}}
}

func (l *Lister) listEntry(tasks []*Task, e fs.DirEntry, path, place string) []*Task {
	t := newTask(path, place)
	switch {
	case strings.HasPrefix(e.Name(), "."):
		t.Report.Skipped = "it is hidden: its name begins with a dot"
	case e.IsDir():
		return l.listSubfolder(tasks, t)
	case e.Type()&fs.ModeSymlink != 0:
		t.link = true
		l.links = append(l.links, t)
	case !e.Type().IsRegular():
		t.Report.Skipped = "it is neither a file nor a folder"
	default:
		if info, err := e.Info(); err == nil {
			t.Size = info.Size()
		}
	}
	return append(tasks, t)
}

// listSubfolder appends the content of the folder t to tasks, or t itself if it is not read.
func (l *Lister) listSubfolder(tasks []*Task, t *Task) []*Task {
	before, isListed := l.folders[t.realPath]
	run := l.findEnclosingRunFolder(t.realPath)
	switch {
	case isListed && l.following:
		t.Report.Skipped = "the folder is read as " + before
	case run != "" && runs.IsRunFolder(t.Path):
		t.Report.Skipped = "it is a run folder in the run folder " + run + "; name it to read it"
	default:
		below, err := l.listFolder(tasks, t.Path, t.realPath)
		if err == nil {
			return below
		}
		t.Report.Skipped = "the folder cannot be read"
		t.Report.AddProblem(0, "%v", err)
	}
	return append(tasks, t)
}

// findEnclosingRunFolder returns the listed run folder that contains place, or "" if there is none. place is
// a path without links.
func (l *Lister) findEnclosingRunFolder(place string) string {
	for dir := filepath.Dir(place); ; dir = filepath.Dir(dir) {
		if run, ok := l.runs[dir]; ok {
			return run
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// Finish follows the links and returns the tasks of each path. Links to folders
// are followed before links to files, because the files may be in these folders.
func (l *Lister) Finish() [][]*Task {
	l.following = true
	var toFiles []*Task
	for i := 0; i < len(l.links); i++ { // following a link may find further links
		if !l.followFolderLink(l.links[i]) {
			toFiles = append(toFiles, l.links[i])
		}
	}
	lists := make([][]*Task, len(l.lists))
	files := map[string]string{} // the paths of the listed files, by real path
	for i, list := range l.lists {
		lists[i] = flattenLinks(nil, list.tasks)
		for _, t := range lists[i] {
			if len(toFiles) > 0 && !t.link && !t.Folder && t.Report.Skipped == "" {
				files[t.realPath] = t.Path
			}
		}
	}
	for _, t := range toFiles {
		if before, ok := files[t.realPath]; ok {
			t.Report.Skipped = "it is a link to a file that is read as " + before
			continue
		}
		files[t.realPath] = t.Path
	}
	return lists
}

// followFolderLink follows the link t to a folder. It returns false if t is a link to a file, and
// true if t cannot be followed.
func (l *Lister) followFolderLink(t *Task) bool {
	info, err := os.Stat(t.Path)
	if err != nil {
		t.Report.Skipped = "it is a link that leads nowhere"
		if !errors.Is(err, fs.ErrNotExist) {
			t.Report.Skipped = fmt.Sprintf("it is a link that cannot be followed: %v", err)
		}
		return true
	}
	t.realPath = realPath(t.Path)
	before, isListed := l.folders[t.realPath]
	run := l.findEnclosingRunFolder(t.realPath)
	switch {
	case isListed:
		t.Report.Skipped = "it is a link to a folder that is read as " + before
	case run != "":
		t.Report.Skipped = "it is a link into the run folder " + run + ", which is read"
	case info.Mode().IsRegular():
		t.Size = info.Size()
		return false
	case !info.IsDir():
		t.Report.Skipped = "it is neither a file nor a folder"
	case l.containsRoot(t.realPath):
		t.Report.Skipped = "it is a link to a folder that contains the folder that is read"
	default:
		t.inside = l.listSubfolder(nil, t)
		t.followed = t.Report.Skipped == ""
	}
	return true
}

// containsRoot reports whether place, a real path, contains a folder that the caller named.
func (l *Lister) containsRoot(place string) bool {
	return slices.ContainsFunc(l.lists, func(list taskList) bool {
		rest, err := filepath.Rel(place, list.root)
		return err == nil && filepath.IsLocal(rest)
	})
}

// flattenLinks appends tasks to all. It replaces each followed link by the content of the folder to
// which it leads.
func flattenLinks(all, tasks []*Task) []*Task {
	for _, t := range tasks {
		if t.followed {
			all = flattenLinks(all, t.inside)
		} else {
			all = append(all, t)
		}
	}
	return all
}

// SetRules sets the rules and templates of the tasks found in and below path. lines and columns
// are the templates and mappings of the options.
func SetRules(f *rules.Finder, tasks []*Task, path string, lines []*template.Template, columns []table.ColumnMapping) error {
	root := path
	if len(tasks) == 1 && tasks[0].named {
		root = filepath.Dir(path)
	}
	for _, t := range tasks {
		t.Lines, t.Columns = lines, columns
		if t.Folder || t.Report.Skipped != "" {
			continue
		}
		r, err := f.Find(filepath.Dir(t.Path), root)
		if err != nil {
			return err
		}
		t.SetRules(r)
	}
	return nil
}

// SetRules sets the rules for the file. Their templates and mappings follow those of the caller's
// options.
func (t *Task) SetRules(r *rules.Rules) {
	if t.Rules = r; r != nil {
		t.Lines, t.Columns, t.Report.Rules = slices.Concat(t.Lines, r.Lines), slices.Concat(t.Columns, r.Columns), r.Path
	}
}

// SkipCopiesOfRuns marks the files that are copies of run folders as skipped, so that no run counts twice.
func SkipCopiesOfRuns(lists [][]*Task) {
	folders := map[string]bool{} // absolute paths of the run folders
	all := slices.Concat(lists...)
	for _, t := range all {
		if place, err := filepath.Abs(t.Path); err == nil && t.Folder {
			folders[place] = true
		}
	}
	for _, t := range all {
		if t.Folder || t.Report.Skipped != "" || programfile.StudyEvidence(t.Path) == nil {
			continue
		}
		dir, ok := runs.StudyLogSource(t.Path)
		if place, err := filepath.Abs(dir); ok && err == nil && folders[place] {
			t.Report.CopyOf, t.Report.Skipped = dir, "it is a copy of the run folder "+dir+", which is read instead"
		}
	}
}
