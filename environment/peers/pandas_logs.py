#!/usr/bin/env python3
"""The pandas and matplotlib side of "lockstep bench read": one process, steered by lines.

    pandas_logs.py --task parse
    pandas_logs.py --task panels

It says what it is in one line of JSON, then answers each line that it reads,
words between tabs, by one line of JSON, and ends with its input:

    {"name": "pandas 1.5.3", "threads": 1}
    parse   log_4.csv             -> {"seconds": 0.08, "rows": 100000}  the file as a table of numbers
    parse   4GPU/out.log          -> {"seconds": 0.05, "rows": 25000}   the same of a log in the SC21 wording
    extract 4GPU/out.log          -> {"seconds": 0.22, "rows": 25000}   by pandas' own way, line by line
    panels  4GPU/out.log four.png -> {"seconds": 0.40, "rows": 25000}   it and its four panels, 1200 x 800 pixels

A log is parsed by one regular expression over the whole text, the fastest of
what was tried: the four lines of an epoch as one expression (53 ms for 100,000
lines), an expression each (56), alternatives in one (154), and alternatives by
pandas' Series.str.extract (216), which "extract" does beside.

The panels are those that Lockstep draws: training and validation loss by
epoch, both by training time, the epoch time and the throughput (of a table
that tells none: the IoU) by workers. Only --task panels imports matplotlib, as
a script of its own would.

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
    import numpy as np
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


EPOCH = re.compile(
    r"Time taken for epoch (\d+) is ([\d.]+) sec, avg ([\d.]+) samples/sec\n"
    r".*  Avg train loss=([\d.]+)\n"
    r".*  Avg val loss=([\d.]+)\n"
    r".*  Total validation time: ([\d.]+) sec"
)
LINE = (
    r"Time taken for epoch (\d+) is ([\d.]+) sec, avg ([\d.]+) samples/sec"
    r"|Avg train loss=([\d.]+)|Avg val loss=([\d.]+)|Total validation time: ([\d.]+) sec"
)
COLUMNS = ["epoch", "time_per_epoch", "rate", "loss", "val_loss", "val_seconds"]


def parse(path):
    if path.endswith(".csv"):
        return pd.read_csv(path, index_col=0)
    with open(path) as file:
        found = EPOCH.findall(file.read())
    return pd.DataFrame(np.array(found, dtype=float), columns=COLUMNS)


def extract(path):
    with open(path) as file:
        lines = pd.Series(file.read().split("\n"))
    found = lines.str.extract(LINE).astype(float)
    return pd.DataFrame({name: found[i].dropna().reset_index(drop=True) for i, name in enumerate(COLUMNS)})


def panels(path, picture):
    table = parse(path)
    workers = int(re.search(r"(\d+)", os.path.basename(path if path.endswith(".csv") else os.path.dirname(path))).group(1))
    epoch, elapsed = range(1, len(table) + 1), table.time_per_epoch.cumsum()
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), dpi=100)
    for axis, x, label in ((axes[0, 0], epoch, "epoch"), (axes[0, 1], elapsed, "training time (s)")):
        axis.plot(x, table.loss, label="training")
        axis.plot(x, table.val_loss, linestyle="--", label="validation")
        axis.set(xlabel=label, ylabel="loss")
        axis.legend(loc="upper right")
    counted = table.time_per_epoch[1:]
    axes[1, 0].plot([workers], [counted.mean()], "o")
    axes[1, 0].set(xlabel="workers", ylabel="epoch time (s)")
    if "rate" in table:
        axes[1, 1].plot([workers], [(table.rate[1:] * counted).sum() / counted.sum()], "o")
        axes[1, 1].set(xlabel="workers", ylabel="throughput (samples/s)")
    else:
        axes[1, 1].plot([workers], [table.iou.iloc[-1]], "o")
        axes[1, 1].set(xlabel="workers", ylabel="IoU")
    figure.savefig(picture)
    plt.close(figure)
    return table


def answer(words):
    begin = time.perf_counter()
    if words[0] == "parse" and len(words) == 2:
        table = parse(words[1])
    elif words[0] == "extract" and len(words) == 2:
        table = extract(words[1])
    elif words[0] == "panels" and len(words) == 3 and ARGS.task == "panels":
        table = panels(words[1], words[2])
    else:
        sys.exit(f"request {words} is not known to this task")
    return {"seconds": time.perf_counter() - begin, "rows": len(table)}


print(json.dumps({"name": NAME, "threads": 1}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(line.rstrip("\n").split("\t"))), flush=True)
