package logread

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/runs"
)

// identityOf returns what identifies a run, with the source of each property: f for the name of the
// file, d for that of a folder, and c, k, x, u for the content, a configuration, a command, the
// user. The series is left out if it is that of the folder above all logs.
func identityOf(r runs.Run) string {
	letters := map[runs.Source]string{
		runs.SourceFileName: "f", runs.SourceFolderName: "d", runs.SourceContent: "c", runs.SourceConfig: "k", runs.SourceCommand: "x", runs.SourceUser: "u",
	}
	var words []string
	add := func(p runs.Property, value any) {
		if origin, ok := r.Origins[p]; ok {
			words = append(words, fmt.Sprintf("%s=%v(%s)", p, value, letters[origin.Source]))
		}
	}
	add(runs.PropertyWorkers, r.Info.Workers)
	add(runs.PropertyNodes, r.Info.Nodes)
	add(runs.PropertyRank, "?")
	add(runs.PropertySeed, r.Info.Seed)
	if r.Info.Series != "studies" {
		add(runs.PropertySeries, r.Info.Series)
	}
	return strings.Join(words, " ")
}

// TestEvidence is the table of what paths and contents say about a run. Each file is read alone.
func TestEvidence(t *testing.T) {
	torn := "\"\"\nme_per_epoch,loss,lr,training_time,test_time,iou\n0,205.381887,0.561627,0.001000,38765.412019,29.629347,0.899849\n"
	ranks := ",loss,accuracy,val_loss,val_accuracy,lr,training_time,ranks\n0,0.5,0.8,0.6,0.7,0.001,100.0,%d\n"
	keras := kerasOf(5, "2.0")
	for path, c := range map[string]struct{ text, want string }{
		// The names of the U-Net study.
		"log_4.csv":                  {twoRows, "workers=4(f) series=native(f)"},
		"log_hvd_4.csv":              {twoRows, "workers=4(f) series=horovod(f)"},
		"hvd_torn/log_hvd_8.csv":     {torn, "workers=8(f) series=horovod(f)"},
		"torn/log_8.csv":             {torn, "workers=8(f) series=native(f)"},
		"log_g4_r2.csv":              {fmt.Sprintf(ranks, 4), "workers=4(c) seed=2(f) series=native(f)"},
		"log_g2_r1.csv":              {fmt.Sprintf(ranks, 8), "workers=8(c) seed=1(f) series=native(f)"},
		"x_log_6.csv":                {twoRows, "workers=6(f) series=x native(f)"},
		"y-log_hvd_6.csv":            {twoRows, "workers=6(f) series=y horovod(f)"},
		"x_log_g6_r3.csv":            {twoRows, "workers=6(f) seed=3(f) series=x native(f)"},
		"8gpus/log_hvd_4.csv":        {twoRows, "workers=8(d) series=horovod(f)"},
		"log_15000000.csv":           {twoRows, ""},
		"results/training.csv":       {twoRows, ""},
		"unet-n2-s7/metrics.log":     {keras, "workers=2(d) seed=7(d) series=unet(d)"},
		"unet-n16-s0.log":            {keras, "workers=16(f) seed=0(f) series=unet(f)"},
		"base/4GPU/00/out.log":       {keras, "workers=4(d) seed=0(d) series=base(d)"},
		"horovod_8gpus_seed3.out":    {keras, "workers=8(f) seed=3(f) series=horovod(f)"},
		"np16/rep2.log":              {keras, "workers=16(d) seed=2(f)"},
		"world_size_32/log.txt":      {keras, "workers=32(d)"},
		"gpus=2/out.log":             {keras, "workers=2(d)"},
		"unet_ws4.log":               {keras, "workers=4(f) series=unet(f)"},
		"unet_8workers.log":          {keras, "workers=8(f) series=unet(f)"},
		"unet_ranks-8.log":           {keras, "workers=8(f) series=unet(f)"},
		"unet_2devices.log":          {keras, "workers=2(f) series=unet(f)"},
		"4nodes/unet_16gpus.log":     {keras, "workers=16(f) nodes=4(d) series=unet(f)"},
		"4GPU/unet_2gpus.log":        {keras, "workers=4(d) series=unet(f)"},
		"unet_n8.log":                {keras, "nodes=8(f) series=unet(f)"},
		"unet_N2_G4.log":             {keras, "nodes=2(f) series=unet-G4(f)"},
		"unet_nodes4.log":            {keras, "nodes=4(f) series=unet(f)"},
		"2-node/unet.log":            {keras, "nodes=2(d) series=unet(f)"},
		"node01/unet.log":            {keras, "series=unet(f)"},
		"node2/unet.log":             {keras, "series=unet(f)"},
		"G593/unet.log":              {keras, "series=unet(f)"},
		"g5.12xlarge/unet.log":       {keras, "series=unet(f)"},
		"n1-standard-8/unet.log":     {keras, "series=unet(f)"},
		"bert_h768.log":              {keras, "series=bert-h768(f)"},
		"resnet_r50.log":             {keras, "series=resnet-r50(f)"},
		"unet_s1024.log":             {keras, "series=unet-s1024(f)"},
		"unet-1234567.out":           {keras, "series=unet(f)"},
		"unet_2021-11-12.log":        {keras, "series=unet(f)"},
		"run-20211112/unet.log":      {keras, "series=unet(f)"},
		"unet_num_workers_8.log":     {keras, "series=unet-num-workers(f)"},
		"unet_4gpus_per_node.log":    {keras, "series=unet-4gpus-per-node(f)"},
		"log_99999999999999gpus.out": {keras, "series=log-99999999999999gpus(f)"},
		// Numbers that may be ranks.
		"unet_gpu4.log":   {keras, "workers=4(f) series=unet(f)"},
		"unet_gpu0.log":   {keras, "rank=?(f) series=unet(f)"},
		"unet_gpu04.log":  {keras, "rank=?(f) series=unet(f)"},
		"unet/worker-0":   {keras, "rank=?(f) series=unet(d)"},
		"unet_task_1.log": {keras, "rank=?(f) series=unet(f)"},
		"unet_rank3.log":  {keras, "rank=?(f) series=unet(f)"},
		"a/gpu2.log":      {worldOf(8, 5), "workers=8(c) rank=?(f) series=unet(c)"},
		"b/gpu2.log":      {worldOf(2, 5), "workers=2(c) series=unet(c)"},
		"c/rank3.log":     {"[rank3]:Epoch 1/1\n[rank3]:9/9 - 5s - loss: 2.0\n", "rank=?(c) series=c(d)"},
		// Names of hosts say nothing.
		"unet/Aug12_10-00-00_gpu3/out.log": {keras, "series=Aug12-gpu3(d)"},
		// Contents.
		"2gpu/world.log":     {"World size: 8\n" + keras, "workers=8(c) series=world(f)"},
		"2gpu/worldsize.log": {"WORLD_SIZE=8, RANK=0\n" + keras, "workers=8(c) series=worldsize(f)"},
		"2gpu/blank.log":     {"world_size 8\n" + keras, "workers=8(c) series=blank(f)"},
		"2gpu/replicas.log":  {"Number of replicas in sync: 4\n" + keras, "workers=4(c) series=replicas(f)"},
		"2gpu/rankof.log":    {"Rank 3 of 8\n" + keras, "workers=8(c) rank=?(c) series=rankof(f)"},
		"2gpu/bracket.log":   {"[rank 3/8] starting\n" + keras, "workers=8(c) rank=?(c) series=bracket(f)"},
		"2gpu/devices.log":   {"Number of devices: 1\nWorld size: 8\n" + keras, "workers=8(c) series=devices(f)"},
		"2gpu/prose.log":     {"World size: 8 GB of data\nRank 3 of 8th\nRank 9 of 8\nworld size matters\n" + keras, "workers=2(d) series=prose(f)"},
		"2gpu/behind.log":    {keras + "World size: 8\n", "workers=8(c) series=behind(f)"},
		"2gpu/two.log":       {"World size: 8\n" + keras + "World size: 4\n" + keras, "workers=8(c) series=two(f); workers=4(c) series=two(f)"},
		"2gpu/content.log":   {worldOf(16, 5), "workers=16(c) series=unet(c)"},
		"2gpu/command.log":   {"+ srun -n 4 python resnet.py --batch_size 8\n" + keras, "workers=4(x) series=resnet(x)"},
		"labels.log":         {"0: Epoch 1/1\n1: Epoch 1/1\n0: 9/9 - 5s - loss: 2.0\n1: 9/9 - 5s - loss: 2.0\n", "workers=2(c) series=labels(f)"},
		"table.csv":          {"study,series,workers,nodes,seed,epoch,seconds\na,native,4,1,1,1,2.5\n", "workers=4(c) nodes=1(c) seed=1(c) series=native(c)"},
		"8gpus/bench.log":    {"Model: ResNet50\nBatch size: 32\nNumber of GPUs: 2\nIter #0: 5.5 img/sec per GPU\nTotal img/sec on 2 GPU(s): 11.0 +-0.5\n", "workers=2(c) series=bench(f)"},
	} {
		root := filepath.Join(t.TempDir(), "studies")
		write(t, root, map[string]string{path: c.text})
		logs, err := Options{}.Read(t.Context(), root)
		check(t, err)
		var got []string
		for _, r := range logs.Runs {
			got = append(got, identityOf(r))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: got %s, want %s", path, text, c.want)
		}
	}
}

// TestPublishedIdentities: the published tables state the identity of each of their runs.
func TestPublishedIdentities(t *testing.T) {
	logs, err := Options{Strict: true}.Read(t.Context(), "../../logs/published")
	check(t, err)
	if len(logs.Runs) == 0 {
		t.Error("no runs")
	}
	for _, r := range logs.Runs {
		if r.Origins[runs.PropertyWorkers].Source != runs.SourceContent || r.Origins[runs.PropertySeries].Source != runs.SourceContent {
			t.Errorf("%s: %v", r.Dir, r.Origins)
		}
	}
}

// TestRenaming: whatever their names, files that state their number of workers keep it, and each
// run is still there. The ranks of one run may become one run, and separate runs stay separate.
func TestRenaming(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		worlds := rapid.SliceOfN(rapid.IntRange(1, 64), 1, 5).Draw(rt, "worlds")
		part := rapid.SampledFrom([]string{"4GPU", "gpu", "gpu0", "gpu1", "gpu2", "rank0", "rank1", "rank7", "task_1", "worker-0", "n8", "n2-s7", "np16", "log_4", "r50", "seed3", "unet", "2021-11-12", "a"})
		dir := filepath.Join(t.TempDir(), "studies")
		files, want := map[string]string{}, map[int]bool{}
		for _, world := range worlds {
			name := part.Draw(rt, "folder") + "/" + part.Draw(rt, "folder") + "/" + part.Draw(rt, "file") + rapid.SampledFrom([]string{".log", ".out", ""}).Draw(rt, "extension")
			if _, used := files[name]; used {
				continue
			}
			files[name], want[world] = worldOf(world, 5), true
		}
		write(t, dir, files)
		logs, err := Options{}.Read(t.Context(), dir)
		check(t, err)
		got := map[int]bool{}
		for _, r := range logs.Runs {
			if got[r.Info.Workers] = true; r.Origins[runs.PropertyWorkers].Source != runs.SourceContent {
				rt.Errorf("%s: workers from %s", r.Dir, r.Origins[runs.PropertyWorkers])
			}
		}
		if !maps.Equal(got, want) {
			rt.Errorf("%v: got worlds %v, want %v", slices.Sorted(maps.Keys(files)), got, want)
		}
	})
}

// In a name such as x-n2, 2 may count the workers. If there are 2 workers, it contradicts no number of nodes.
func TestNamesWithWorkersAsNodes(t *testing.T) {
	for name, want := range map[string]int{"x-n2.log": 0, "x-n4.log": 1, "x-2nodes.log": 1} {
		if r := readOne(t, name, "+ torchrun --nproc_per_node=2 a.py\n"+twoEpochs); r.Info.Nodes != 1 || len(r.Problems) != want {
			t.Errorf("%s: %d nodes, problems %v", name, r.Info.Nodes, r.Problems)
		}
	}
}

// A program may print only the devices of its node. If the workers in the name are no multiple of them, that is a problem.
func TestDevicesContradictNames(t *testing.T) {
	for name, want := range map[string]int{"x_4gpus.log": 1, "x_8gpus.log": 0, "x_16gpus.log": 0} {
		r := readOne(t, name, "Number of GPUs: 8\n"+twoEpochs)
		workers := 0
		if _, err := fmt.Sscanf(name, "x_%dgpus.log", &workers); err != nil || r.Info.Workers != workers || len(r.Problems) != want {
			t.Errorf("%s: %d workers, problems %v", name, r.Info.Workers, r.Problems)
		}
	}
}
