package wholefile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckOverwrite returns an error if writing a user's output to path would destroy data. This is
// the case if path is a file of a run folder (a folder with run.json), or one of inputs, the
// files and folders that the same call reads. A link, even a hard link, counts as the file that
// it leads to.
//
// Earlier outputs in these folders (pictures, pages, CSV of lockstep read) may be replaced,
// because nothing reads them. Call CheckOverwrite before anything is written.
func CheckOverwrite(path string, inputs ...string) error {
	output, err := os.Stat(path)
	if err != nil || !output.Mode().IsRegular() {
		return nil // nothing can be replaced; if path cannot be written, Write returns the error
	}
	if isEarlierOutput(path) {
		inputs = existingFiles(inputs)
	} else if dir := findRunFolder(path); dir != "" {
		return fmt.Errorf("write %s: it is a file of the run folder %s: choose another output", path, dir)
	}
	visited := map[string]bool{}
	for _, input := range inputs {
		if file := findSameFile(input, output, visited); file != "" {
			return fmt.Errorf("write %s: this command also reads this file (as %s): choose another output, or remove the file if it is an old output", path, file)
		}
	}
	return nil
}

func existingFiles(paths []string) []string {
	var files []string
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			files = append(files, path)
		}
	}
	return files
}

// findRunFolder follows links in path and returns the innermost folder with a run.json that
// contains the resulting file, or "" if there is none.
func findRunFolder(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		target, err = filepath.Abs(target)
	}
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(target); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, "run.json")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// findSameFile returns the path of file in or below root, or "" if it is not there. It follows
// links, and skips the folders in visited, to which it adds real paths.
func findSameFile(root string, file fs.FileInfo, visited map[string]bool) string {
	info, err := os.Stat(root)
	switch {
	case err != nil:
		return ""
	case !info.IsDir():
		if os.SameFile(info, file) {
			return root
		}
		return ""
	}
	place, err := filepath.EvalSymlinks(root)
	if err == nil {
		place, err = filepath.Abs(place)
	}
	if err != nil || visited[place] {
		return ""
	}
	visited[place] = true
	entries, _ := os.ReadDir(root) // the command that reads root reports an error
	for _, e := range entries {
		if found := findSameFile(filepath.Join(root, e.Name()), file, visited); found != "" {
			return found
		}
	}
	return ""
}

// ValuesCSVHeader is the first line of the CSV that the command "lockstep read" writes.
const ValuesCSVHeader = "run,series,workers,seed,rank,epoch,step,name,value\n"

// isEarlierOutput reports whether the file at path begins like an output of Lockstep: a picture,
// a page, or the CSV of "lockstep read". Commands that read a folder of logs ignore such files.
func isEarlierOutput(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // a short or unreadable file begins with none of the texts
	_ = f.Close()
	for _, start := range []string{"\x89PNG\r\n", "%PDF-", "<?xml version=\"1.0\"?>\n<svg", "<!doctype html>", "<!DOCTYPE html>", ValuesCSVHeader, "[\n{\"run\":\"", "PAR1", "ARROW1"} {
		if bytes.HasPrefix(head[:n], []byte(start)) {
			return true
		}
	}
	return false
}
