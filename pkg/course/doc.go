// Package course checks the answers to the exercises of notebooks, and packs and grades what
// students hand in.
//
// A task file, NN-title.yaml, describes the tasks of the notebook NN-title.ipynb: see [Task]. In a
// cell, Check judges an answer from the student's own runs:
//
//	course.Check("server/6", map[string]any{"speedup": 1.87}, job.Dir())
//
// The right value is never stored. It is computed again from the run folders, within a tolerance of
// 2 %, so that an honest measurement on a slow or busy machine is right. The output of a right answer
// contains the values and the hashes of its runs, so that it travels in the notebook.
//
//	Release        a solution notebook → the students' notebook
//	CheckNotebook  a notebook → the state of each task
//	Submit         a notebook and the runs of its answers → a zip file
//	Grades         zip files → points
//	NewPage        a notebook → a page or PDF
//
// A student can change everything in the notebook and the kernel. Therefore Grades believes no
// output: it judges each answer again in its own process, and calls functions of students in a fresh
// kernel with inputs that they do not know. It cannot notice run folders that were forged as a whole.
package course
