"""A student at a JupyterHub: logs in, starts the server and a Go kernel, and runs cells.

    session.py ADDRESS NAME < cells > replies

The password is in the variable PASSWORD. Each line of the input is a cell, as a JSON string. The
first reply is {"token": an API token of the student}; the others are {"text": what the cell
printed, "error": "" or the error}.
"""
import asyncio
import json
import os
import sys
import time
import uuid

import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

LIMIT = 180  # seconds for each step

address, name = sys.argv[1:]


def check(reply):
    if reply.status_code >= 400:
        sys.exit(f"{reply.request.method} {reply.url}: {reply.status_code} {reply.text[:500]}")
    return reply


def log_in():
    """Returns an API token, which a page of the hub would use."""
    s = requests.Session()
    check(s.get(address + "/hub/login"))
    form = {"username": name, "password": os.environ["PASSWORD"], "_xsrf": s.cookies.get("_xsrf", "")}
    reply = check(s.post(address + "/hub/login", data=form, allow_redirects=False))
    if reply.status_code != 302:
        sys.exit(f"login of {name}: {reply.status_code}, want a redirect: " + reply.text[-2000:])
    headers = {"Referer": address + "/hub/home", "X-XSRFToken": s.cookies.get("_xsrf", "")}
    return check(s.post(f"{address}/hub/api/users/{name}/tokens", json={"note": "test"}, headers=headers)).json()["token"]


def start_kernel(headers):
    """Starts the server, and then a kernel, whose id is returned."""
    user = f"{address}/hub/api/users/{name}"
    check(requests.post(user + "/server", headers=headers))
    end = time.monotonic() + LIMIT
    while not check(requests.get(user, headers=headers)).json()["servers"].get("", {}).get("ready"):
        if time.monotonic() > end:
            sys.exit(f"the server of {name} is not ready after {LIMIT} s")
        time.sleep(0.2)
    return check(requests.post(f"{address}/user/{name}/api/kernels", json={"name": "lockstep"}, headers=headers)).json()["id"]


async def run(socket, code):
    """Runs a cell and returns its output and its error."""
    sent = uuid.uuid4().hex
    header = {"msg_id": sent, "msg_type": "execute_request", "username": name, "session": "test", "version": "5.3", "date": ""}
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}
    await socket.write_message(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}))
    text, error = "", ""
    while True:
        message = await socket.read_message()
        if message is None:
            sys.exit("the connection to the kernel has ended")
        m = json.loads(message)
        if m["parent_header"].get("msg_id") != sent:
            continue
        if m["msg_type"] == "stream":
            text += m["content"]["text"]
        elif m["msg_type"] == "error":
            error = m["content"]["evalue"] or "\n".join(m["content"]["traceback"])
        elif m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
            return {"text": text, "error": error}


async def main():
    token = log_in()
    headers = {"Authorization": "token " + token}
    kernel = start_kernel(headers)
    url = f"ws{address[4:]}/user/{name}/api/kernels/{kernel}/channels"
    socket = await websocket_connect(HTTPRequest(url, headers=headers, connect_timeout=LIMIT))
    print(json.dumps({"token": token}), flush=True)
    for line in sys.stdin:
        print(json.dumps(await asyncio.wait_for(run(socket, json.loads(line)), LIMIT)), flush=True)


asyncio.run(main())
