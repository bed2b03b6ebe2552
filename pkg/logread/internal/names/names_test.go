package names

import "testing"

// TestParse is the table of what names say. Numbers after explicit words count; other numbers
// mean nothing.
func TestParse(t *testing.T) {
	type want struct {
		workers, nodes, seed, number int
		word, rest                   string
	}
	for name, w := range map[string]want{
		// A number before gpu(s), or beside workers, ranks, np, ws, world, devices.
		"4GPU":               {4, 0, -1, -1, "", "_"},
		"horovod_8gpus":      {8, 0, -1, -1, "", "horovod__"},
		"ddp-4-gpus":         {4, 0, -1, -1, "", "ddp-_"},
		"4 GPUs":             {4, 0, -1, -1, "", "_"},
		"unet-4-gpu":         {4, 0, -1, -1, "", "unet-_"},
		"gpus=2":             {2, 0, -1, -1, "", "_"},
		"horovod_gpus-2":     {2, 0, -1, -1, "", "horovod__"},
		"n_gpus_4":           {4, 0, -1, -1, "", "_"},
		"ngpus8":             {8, 0, -1, -1, "", "_"},
		"8_workers":          {8, 0, -1, -1, "", "_"},
		"workers-16":         {16, 0, -1, -1, "", "_"},
		"ranks32":            {32, 0, -1, -1, "", "_"},
		"64ranks":            {64, 0, -1, -1, "", "_"},
		"np16":               {16, 0, -1, -1, "", "_"},
		"np=4":               {4, 0, -1, -1, "", "_"},
		"ws8":                {8, 0, -1, -1, "", "_"},
		"world_size_32":      {32, 0, -1, -1, "", "_"},
		"world64":            {64, 0, -1, -1, "", "_"},
		"devices-2":          {2, 0, -1, -1, "", "_"},
		"2devices":           {2, 0, -1, -1, "", "_"},
		"unet-n2-s7":         {2, 0, 7, -1, "", "unet-_-_"},
		"4gpus_2nodes":       {4, 2, -1, -1, "", "___"},
		"4_gpus_2_nodes":     {4, 2, -1, -1, "", "___"},
		"horovod_8gpus_run3": {8, 0, 3, -1, "", "horovod____"},
		// Nodes.
		"n8":            {0, 8, -1, -1, "", "_"},
		"N2_G4":         {0, 2, -1, -1, "", "__G4"},
		"nodes4":        {0, 4, -1, -1, "", "_"},
		"nodes_16":      {0, 16, -1, -1, "", "_"},
		"4nodes":        {0, 4, -1, -1, "", "_"},
		"2-node":        {0, 2, -1, -1, "", "_"},
		"resnet50_n16":  {0, 16, -1, -1, "", "resnet50__"},
		"unet_n2_s7":    {0, 2, -1, -1, "", "unet___s7"},
		"node01":        {0, 0, -1, -1, "", "node01"}, // a host
		"node2":         {0, 0, -1, -1, "", "node2"},
		"num_nodes_2":   {0, 2, -1, -1, "", "_"},
		"n1-standard-8": {0, 0, -1, -1, "", "n1-standard-8"}, // a machine type
		// Numbers that may be ranks.
		"rank0":             {0, 0, -1, 0, "rank", "_"},
		"rank3":             {0, 0, -1, 3, "rank", "_"},
		"rank.2":            {0, 0, -1, 2, "rank", "_"},
		"gpu0":              {0, 0, -1, 0, "gpu", "_"},
		"unet_gpu4":         {0, 0, -1, 4, "gpu", "unet__"},
		"worker-0":          {0, 0, -1, 0, "worker", "_"},
		"task_1":            {0, 0, -1, 1, "task", "_"},
		"job_123456_gpu_4":  {0, 0, -1, 4, "gpu", "job_123456__"},
		"8gpus_rank3":       {8, 0, -1, 3, "rank", "___"},
		"unet_local_rank_1": {0, 0, -1, 1, "rank", "unet_local__"},
		// Seeds and repeats.
		"seed3":        {0, 0, 3, -1, "", "_"},
		"seed20231105": {0, 0, 20231105, -1, "", "_"},
		"rep2":         {0, 0, 2, -1, "", "_"},
		"repeat-4":     {0, 0, 4, -1, "", "_"},
		"run_7":        {0, 0, 7, -1, "", "_"},
		// Nothing.
		"G593":                   {0, 0, -1, -1, "", "G593"},
		"g5.12xlarge":            {0, 0, -1, -1, "", "g5.12xlarge"},
		"h768":                   {0, 0, -1, -1, "", "h768"},
		"r50":                    {0, 0, -1, -1, "", "r50"},
		"unet_s1024":             {0, 0, -1, -1, "", "unet_s1024"},
		"resnet152":              {0, 0, -1, -1, "", "resnet152"},
		"slurm-1234567":          {0, 0, -1, -1, "", "slurm-1234567"},
		"job_77001":              {0, 0, -1, -1, "", "job_77001"},
		"run-20231105":           {0, 0, -1, -1, "", "run-20231105"},
		"run_2021-11-12":         {0, 0, -1, -1, "", "run_2021-11-12"},
		"2021-11-12-gpu":         {0, 0, -1, -1, "", "2021-11-12-gpu"},
		"gpus_2021-11-12":        {0, 0, -1, -1, "", "gpus_2021-11-12"},
		"123456_gpu":             {0, 0, -1, -1, "", "123456_gpu"},
		"gpu_123456":             {0, 0, -1, -1, "", "gpu_123456"},
		"num_workers_8":          {0, 0, -1, -1, "", "num_workers_8"}, // of a data loader
		"loader_workers8":        {0, 0, -1, -1, "", "loader_workers8"},
		"4gpus_per_node":         {0, 0, -1, -1, "", "4gpus_per_node"},
		"8x4gpu":                 {0, 0, -1, -1, "", "8x4gpu"},
		"a100x8":                 {0, 0, -1, -1, "", "a100x8"},
		"log_99999999999999gpus": {0, 0, -1, -1, "", "log_99999999999999gpus"},
		"15000000gpus":           {0, 0, -1, -1, "", "15000000gpus"}, // more than MaxWorkersOrNodes
		"0gpus":                  {0, 0, -1, -1, "", "0gpus"},
		"resnet":                 {0, 0, -1, -1, "", "resnet"},
		"":                       {0, 0, -1, -1, "", ""},
	} {
		f := Parse(name)
		got := want{f.Workers, f.Nodes, f.Seed, f.Number, f.Word, f.Rest}
		if got != w {
			t.Errorf("%q: got %+v, want %+v", name, got, w)
		}
	}
}

// TestNumberOffsets: a caller can replace the number of a rank in the name.
func TestNumberOffsets(t *testing.T) {
	for name, want := range map[string]string{"rank12": "12", "unet_worker-03_a": "03"} {
		if f := Parse(name); name[f.At:f.End] != want {
			t.Errorf("%q: the number is %q, want %q", name, name[f.At:f.End], want)
		}
	}
}

// FuzzParse: no name makes Parse fail, and each field is in its limits.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"unet-n2-s7", "4 GPUs", "rank_0_gpu_3", "2021-11-12", "n1-standard-8"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := Parse(name)
		if got.Workers < 0 || got.Workers > MaxWorkersOrNodes || got.Nodes < 0 || got.Nodes > MaxWorkersOrNodes || got.Number > MaxWorkersOrNodes || len(got.Rest) > len(name) {
			t.Errorf("%q: %+v", name, got)
		}
		if got.Number >= 0 && (got.At < 0 || got.At >= got.End || got.End > len(name)) {
			t.Errorf("%q: the number is at %d to %d", name, got.At, got.End)
		}
	})
}
