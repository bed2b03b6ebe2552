#!/usr/bin/env python3
"""The pandas and matplotlib side of "lockstep bench read": one process, steered by lines.

    pandas_logs.py --task parse
    pandas_logs.py --task panels

It says what it is in one line of JSON, then answers each line that it reads,
words between tabs, by one line of JSON, and ends with its input:

    {"name": "pandas 1.5.3", "threads": 1}
    parse  log_4.csv             -> {"seconds": 0.11, "rows": 100000}   the file as a table of numbers
    panels log_4.csv four.png    -> {"seconds": 1.9, "rows": 100000}    it and its four panels, 1200 x 800 pixels

The panels are those that Lockstep draws: training and validation loss by
epoch, both by training time, the epoch time and the IoU by workers. Only
--task panels imports matplotlib, as a script of its own would.

Exit code 3: pandas or matplotlib is not installed; see environment/peers/install.
"""

import argparse
import json
import os
import re
import sys
import time

P = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
P.add_argument("--task", choices=("parse", "panels"), default="parse")
ARGS = P.parse_args()

# The parser uses one thread; its libraries are told so before they are loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

try:
    import pandas as pd

    NAME = f"pandas {pd.__version__}"
    if ARGS.task == "panels":
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        NAME += f", matplotlib {matplotlib.__version__}"
except ImportError as e:
    print(f"{e}: install pandas and matplotlib with environment/peers/install", file=sys.stderr)
    sys.exit(3)


def parse(path):
    return pd.read_csv(path, index_col=0)


def panels(path, picture):
    table = parse(path)
    workers = int(re.search(r"(\d+)", os.path.basename(path)).group(1))
    epoch, elapsed = table.index + 1, table.time_per_epoch.cumsum()
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), dpi=100)
    for axis, x, label in ((axes[0, 0], epoch, "epoch"), (axes[0, 1], elapsed, "training time (s)")):
        axis.plot(x, table.loss)
        axis.plot(x, table.val_loss, linestyle="--")
        axis.set(xlabel=label, ylabel="loss")
    axes[1, 0].plot([workers], [table.time_per_epoch[1:].mean()], "o")
    axes[1, 0].set(xlabel="workers", ylabel="epoch time (s)")
    axes[1, 1].plot([workers], [table.iou.iloc[-1]], "o")
    axes[1, 1].set(xlabel="workers", ylabel="IoU")
    figure.savefig(picture)
    plt.close(figure)
    return table


def answer(words):
    begin = time.perf_counter()
    if words[0] == "parse" and len(words) == 2:
        table = parse(words[1])
    elif words[0] == "panels" and len(words) == 3 and ARGS.task == "panels":
        table = panels(words[1], words[2])
    else:
        sys.exit(f"request {words} is not known to this task")
    return {"seconds": time.perf_counter() - begin, "rows": len(table)}


print(json.dumps({"name": NAME, "threads": 1}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(line.rstrip("\n").split("\t"))), flush=True)
