package bench

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// patternFileKinds returns kinds of text files that repeat one line, or the lines of one epoch, with
// other numbers.
func patternFileKinds() []generatedFileKind {
	const stamp, micro, brackets = "2024-05-04 10:00:00,123 - root - INFO - ", "2023-05-04 10:00:06.000200: ", "[2023-05-04 10:00:20,000] [INFO] "
	const mlflowRun = "4GPU/mlruns/0/0123456789abcdef0123456789abcdef/metrics/loss"
	var kinds []generatedFileKind
	for _, k := range []struct{ name, file, header, piece, end string }{
		{"U-Net study stdout", "4GPU/unet.out", "", "[INFO] EPOCH: <m>/8000000\nTrain loss: 0.999999, elapsed time: 199.99\n", ""},
		{"torchtitan", "4GPU/titan.log", "", "[rank0]:" + stamp + "step: <m>  loss:  7.9999  memory: 39.99GiB(41.99%)  tps: 7,199  mfu: 35.99%\n", ""},
		{"PyTorch ImageNet example", "4GPU/imagenet.out", "", "Epoch: [<e>][<s>/1000]\tTime  0.999 ( 0.999)\tData  0.099 ( 0.099)\tLoss 6.9999e+00 (6.9999e+00)\tAcc@1   9.99 (  9.99)\tAcc@5  19.99 ( 19.99)\n", ""},
		{"torchvision reference", "4GPU/vision.out", "", "Epoch: [<e>]  [<s>/1000]  eta: 0:20:50  lr: 0.1  img/s: 519.99  loss: 6.9999 (6.9999)  acc1: 9.9999 (9.9999)  acc5: 19.9999 (19.9999)  time: 0.2999  data: 0.0199  max mem: 5000\n", ""},
		{"timm", "4GPU/timm.out", "", "Train: <e> [ <s>/1000 ( 50%)]  Loss: 6.99 (6.99)  Time: 0.499s, 2099.99/s  (0.499s, 2099.99/s)  LR: 1.099e-05  Data: 0.019 (0.019)\n", ""},
		{"tqdm bars", "4GPU/tqdm.out", "", "Epoch <m>/8000000:   0%|          | 0/625 [00:00<?, ?it/s]\rEpoch <m>/8000000:  50%|█████     | 312/625 [00:06<00:06, 50.99it/s, loss=0.9999]\rEpoch <m>/8000000: 100%|██████████| 625/625 [00:12<00:00, 50.99it/s, loss=0.9999]\n", ""},
		{"Lightning bars", "4GPU/lightning.out", "", "\rEpoch <n>:  50%|█████     | 469/938 [00:06<00:06, 78.99it/s, v_num=3]\rEpoch <n>: 100%|██████████| 938/938 [00:12<00:00, 75.99it/s, v_num=3, train_loss=0.999]", ""},
		{"nnU-Net", "4GPU/nnunet.log", "", micro + "Epoch <n> \n" + micro + "Current learning rate: 0.00999 \n" + micro + "train_loss 0.0999 \n" + micro + "val_loss -0.2999 \n" + micro + "Pseudo dice [0.5999, 0.2999] \n" + micro + "Epoch time: 129.99 s \n", ""},
		{"tf_cnn_benchmarks", "4GPU/tfcnn.out", "TensorFlow:  1.15\nModel:       resnet50\nDataset:     imagenet (synthetic)\nMode:        training\nSingleSess:  False\nBatch size:  256 global\n             64 per device\n", "<m>\timages/sec: 1499.9 +/- 9.9 (jitter = 9.9)\t7.999\n", ""},
		{"nanoGPT", "4GPU/nanogpt.out", "", "iter <n>: loss 1.9999, time 29.99ms, mfu 3.99%\n", ""},
		{"DeepSpeed", "4GPU/deepspeed.out", "", brackets + "[logging.py:96:log_dist] [Rank 0] step=<m>, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]\n" + brackets + "[timer.py:199:stop] epoch=0/micro_step=<m>/global_step=<m>, RunningAvgSamplesPerSec=95.99, CurrSamplesPerSec=96.99, MemAllocated=4.5GB, MaxMemAllocated=12.25GB\n", ""},
		{"Megatron-LM", "4GPU/megatron.out", "", " [2024-05-04 10:00:30] iteration      <m>/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 2499.9 | throughput per GPU (TFLOP/s/GPU): 101.9 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 9.599999E+00 | loss scale: 1.0 | grad norm: 2.199 | number of skipped iterations:   0 | number of nan iterations:   0 |\n", ""},
		{"Hugging Face Trainer", "4GPU/trainer.out", "", "{'loss': 0.9999, 'grad_norm': 2.5999, 'learning_rate': 3.799e-05, 'epoch': <e>.<s>}\n", ""},
		{"benchy", "4GPU/benchy.out", "", "BENCHY::FULL_<n>::Trial Throughput: 89.999\n", ""},
		{"JSON lines", "4GPU/log.jsonl", "", `{"epoch": <m>, "loss": 2.5999, "epoch_time": 10.99, "throughput": 199.99, "val_loss": 2.0999, "val_acc": 0.5999}` + "\n", ""},
		{"MMEngine scalars", "4GPU/scalars.json", "", `{"lr": 0.02, "data_time": 0.2599, "loss": 2.5599, "time": 0.5599, "epoch": <e>, "iter": <m>, "memory": 3000, "step": <m>}` + "\n", ""},
		{"MMCV log", "4GPU/20240101_120000.log.json", "", `{"mode": "train", "epoch": <e>, "iter": <s>, "lr": 0.025, "memory": 3000, "data_time": 0.2599, "loss": 2.5399, "time": 0.5199}` + "\n", ""},
		{"Detectron2 metrics", "4GPU/metrics.json", "", `{"data_time": 0.2599, "iteration": <n>, "loss_cls": 1.5199, "lr": 0.025, "time": 0.5099, "total_loss": 2.5399}` + "\n", ""},
		{"plain loss lines", "4GPU/loss.txt", "", "<m> 8.0499999999999\n", ""},
		{"MLflow metrics", mlflowRun, "", "1700000000000 0.8799999999999999 <n>\n", ""},
		{"rows of lockstep read", "rows.csv", "run,series,workers,seed,rank,epoch,step,name,value\n", "unet2d-cells/ddp-n4-s1,ddp,4,1,,<m>,,seconds,195.99999999999999\nunet2d-cells/ddp-n4-s1,ddp,4,1,,<m>,,train_loss,0.5999999999999999\nunet2d-cells/ddp-n4-s1,ddp,4,1,,<m>,,val_loss,0.5999999999999999\n", ""},
		{"CSV table", "4GPU/history.csv", "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\n", "<m>,0.3199999999999999,0.0010000000474974513,1.9199999999999999,0.2899999999999999,1.8299999999999999\n", ""},
		{"TSV table", "history.tsv", "n_gpus\tepoch\tepoch_time\ttrain_loss\tval_loss\n", "4\t<m>\t40.259999990463257\t0.9199999999999999\t0.9599999999999999\n", ""},
		{"W&B export", "4GPU/history.csv", ",_step,_runtime,_timestamp,epoch,train/loss,val/loss\n", "<n>,<n>,<n>.4599999,1700000000.1599999,<e>,2.5999999999999999,2.6999999999999999\n", ""},
		{"MLflow export", "4GPU/mlflow.csv", "run_id,key,value,timestamp,step\n", "0a1b2c3d4e5f60718203a4b5c6d7e8f0,train_loss,0.5999999999999999,1700000000000,<m>\n", ""},
		{"TensorBoard export", "4GPU/run-loss.csv", "Wall time,Step,Value\n", "1700000000.2599999,<n>,0.5999999999999999\n", ""},
		{"nvidia-smi", "4GPU/gpu.csv", "timestamp, name, index, utilization.gpu [%], power.draw [W], temperature.gpu\n", "2023/11/14 22:13:20.000, Tesla V100-SXM2-16GB, 0, 49 %, 199.99 W, 49\n", ""},
		{"trace", "4GPU/timeline.json", "[\n", `{"ph": "X", "name": "ALLREDUCE", "cat": "communication", "pid": 1, "tid": 1, "ts": <n>00.299, "dur": 59.299},` + "\n", `{"ph": "X", "name": "ALLREDUCE", "cat": "communication", "pid": 1, "tid": 1, "ts": 0.1, "dur": 1}]`},
		{"Hugging Face trainer state", "4GPU/trainer_state.json", "{\n  \"global_step\": 1000,\n  \"log_history\": [\n", "    {\n      \"epoch\": <e>.<s>,\n      \"grad_norm\": 2.5999,\n      \"learning_rate\": 3.799e-05,\n      \"loss\": 0.7999,\n      \"step\": <n>\n    },\n", "    {\n      \"epoch\": 1000000,\n      \"loss\": 0.5,\n      \"step\": 1000000000\n    }\n  ]\n}\n"},
	} {
		kinds = append(kinds, generatedFileKind{name: k.name, file: k.file, piece: newPatternAppender(k.header, k.piece), end: k.end})
	}
	return kinds
}

// newPatternAppender returns an appender that writes header before piece 0, and text for each piece. In text, each
// 9 becomes a random digit, <n> the number of the piece from 0, and <m> that number from 1. For epochs of a
// thousand steps, <e> becomes n/1000, and <s> becomes n%1000 with three digits.
func newPatternAppender(header, text string) filePieceAppender {
	return func(b []byte, rng *rand.Rand, n int) []byte {
		if n == 0 {
			b = append(b, header...)
		}
		for i := 0; i < len(text); i++ {
			if text[i] == '9' {
				b = append(b, '0'+byte(rng.IntN(10)))
				continue
			}
			if text[i] != '<' || i+2 >= len(text) || text[i+2] != '>' || !strings.Contains("nmes", text[i+1:i+2]) {
				b = append(b, text[i])
				continue
			}
			switch text[i+1] {
			case 'n':
				b = strconv.AppendInt(b, int64(n), 10)
			case 'm':
				b = strconv.AppendInt(b, int64(n+1), 10)
			case 'e':
				b = strconv.AppendInt(b, int64(n/1000), 10)
			case 's':
				b = append(b, strconv.Itoa(1000 + n%1000)[1:]...)
			}
			i += 2
		}
		return b
	}
}
