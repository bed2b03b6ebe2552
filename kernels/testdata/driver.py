"""Runs the steps of a JSON document on a kernel and prints what came back.

    python3 driver.py KERNELSPEC_PREFIX < steps.json > replies.json

Steps: {"execute": CODE, "interrupt_after": SECONDS or null, "interrupt_on": TEXT
or null, "again_after": SECONDS after the first for a second one or null, "input":
LINES to answer with or null where nobody can be asked, "dies": true for a cell
that ends the kernel, "repeat": N, "timeout":
SECONDS}, {"inspect": CODE, "pos": N, "detail": N}, {"complete": CODE, "pos": N}, {"queue": CELLS, "go":
true to pass stop_on_error=False}, which sends all cells, answers an input request and returns the status
of each reply with what the cell printed, {"kernel_info": true}, {"restart": true}, which kills the
kernel and starts another, {"leave": true}, which lets clients ask the kernel and disconnect before it
has answered. A reply to an execute
step lists the messages of the cell in order, with the seconds since it was
sent, and ends with the execute_reply.
"""
import json
import os
import queue
import sys
import time
import uuid

prefix = sys.argv[1]
os.environ["JUPYTER_PATH"] = os.path.join(prefix, "share", "jupyter")

import zmq  # noqa: E402
from jupyter_client.manager import KernelManager  # noqa: E402

KEPT = ("stream", "display_data", "update_display_data", "execute_result", "error")


def leave(manager):
    for _ in range(8):
        other = manager.client()
        shell = zmq.Context.instance().socket(zmq.DEALER)  # a blocking socket
        other.session.session = uuid.uuid4().hex  # else its messages have the IDs of client's
        shell.identity = other.session.bsession
        shell.connect(other._make_url("shell"))
        for count in (1, 50):  # the first reply shows that the connection is open
            for _ in range(count):
                other.session.send(shell, "kernel_info_request")
            if not shell.poll(60000):
                raise TimeoutError("no reply to kernel_info_request")
        shell.close(linger=0)


def reply_to(client, sent):
    """Return the content of the reply to the message sent. wait_for_ready asks a slow kernel several
    times, and leaves all replies but one in the queue."""
    while True:
        message = client.get_shell_msg(timeout=60)
        if message["parent_header"].get("msg_id") == sent:
            return message["content"]


def execute(manager, client, step):
    start = time.monotonic()
    lines = list(step.get("input") or [])
    sent = client.execute(step["execute"], allow_stdin=step.get("input") is not None)
    messages, interrupted_at, idle = [], None, False
    deadline = start + step.get("timeout", 300)
    again = step.get("again_after")
    after, on = step.get("interrupt_after"), step.get("interrupt_on")
    while not idle:
        now = time.monotonic()
        if step.get("dies") and not manager.is_alive():
            return {"reply": {}, "messages": messages, "seconds": now - start}
        if now > deadline:
            return {"error": "timeout", "messages": messages, "alive": manager.is_alive()}
        if interrupted_at is None and after is not None and now - start >= after:
            manager.interrupt_kernel()
            interrupted_at = now - start
        if interrupted_at is not None and again is not None and now - start >= interrupted_at + again:
            manager.interrupt_kernel()
            again = None
        if lines:
            try:
                if client.get_stdin_msg(timeout=0.05)["msg_type"] == "input_request":
                    client.input(lines.pop(0))
            except queue.Empty:
                pass
        try:
            m = client.get_iopub_msg(timeout=0.05)
        except Exception:
            continue
        if m["parent_header"].get("msg_id") != sent:
            continue
        kind, content = m["msg_type"], m["content"]
        if kind in KEPT:
            messages.append({"type": kind, "at": time.monotonic() - start, "content": content})
        if kind == "status" and content["execution_state"] == "idle":
            idle = True
        text = content.get("text", "") if kind == "stream" else json.dumps(content.get("data", ""))
        if interrupted_at is None and on is not None and on in text and kind in KEPT:
            manager.interrupt_kernel()
            interrupted_at = time.monotonic() - start
    reply = reply_to(client, sent)
    process = getattr(manager, "provisioner", None) or manager.kernel
    with open("/proc/%d/status" % process.pid) as f:
        memory = next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))
    return {
        "memory": memory,
        "messages": messages,
        "reply": reply,
        "seconds": time.monotonic() - start,
        "interrupted_at": interrupted_at,
        "alive": manager.is_alive(),
    }


def run_queue(client, step):
    sent = [client.execute(c, allow_stdin=True, stop_on_error=not step.get("go")) for c in step["queue"]]
    if client.get_stdin_msg(timeout=60)["msg_type"] == "input_request":
        client.input("")
    status = {id: reply_to(client, id)["status"] for id in sent}  # the replies come in this order
    printed, idle = dict.fromkeys(sent, ""), 0
    while idle < len(sent):
        m = client.get_iopub_msg(timeout=60)
        id = m["parent_header"].get("msg_id")
        if id in printed and m["msg_type"] == "stream":
            printed[id] += m["content"]["text"]
        idle += id in printed and m["content"].get("execution_state") == "idle"
    return [(status[id] + " " + printed[id]).strip() for id in sent]


def main():
    steps = json.load(sys.stdin)
    manager = KernelManager(kernel_name="lockstep")
    start = time.monotonic()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    replies = []
    try:
        client.wait_for_ready(timeout=300)
        replies.append({"ready_seconds": time.monotonic() - start})
        for step in steps:
            if "execute" in step:
                for _ in range(step.get("repeat", 1)):
                    reply = execute(manager, client, step)
                replies.append(reply)
            elif "complete" in step:
                replies.append({"reply": reply_to(client, client.complete(step["complete"], cursor_pos=step["pos"]))})
            elif "queue" in step:
                replies.append({"reply": {}, "queue": run_queue(client, step)})
            elif "kernel_info" in step:
                replies.append({"reply": reply_to(client, client.kernel_info())})
            elif step.get("leave"):
                leave(manager)
                replies.append({"reply": {}})
            elif step.get("restart"):
                manager.restart_kernel(now=True)
                client.wait_for_ready(timeout=300)
                replies.append({"reply": {}})
            elif "inspect" in step:
                sent = client.inspect(step["inspect"], cursor_pos=step["pos"], detail_level=step.get("detail", 0))
                replies.append({"reply": reply_to(client, sent)})
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    json.dump(replies, sys.stdout)


main()
