"""A child that asks as fast as it is answered. Standard library only, blocking, one process a session: what a call
costs here is one read, one write and a few splices, so the load does not hide what is measured.

    python -S -E load_child.py [bare]

Speaks the stdio protocol as far as a gateway needs it. A prompt is the order: ``calls COUNT BYTES PERIOD_US`` asks for
answers of BYTES, one after the other, each at its time (0: at once); ``events COUNT PERIOD_US`` says diagnostics that
carry the clock's reading. Latencies (call written to answer read, microseconds) go to a file in ``BENCH_OUT`` as
unsigned 32-bit numbers when the order is done. ``bare``: no protocol, for the floors; a line in is the order or an
answer, a line out is a call.
"""

import json
import os
import random
import sys
import time
from array import array
from collections.abc import Iterator

IN, OUT = 0, 1
LIMITS = {"frame_bytes": 65536, "json_depth": 32, "prompt_bytes": 16384, "requests_per_child": 4096}
HEAD = b'{"protocol":"magi-code.local-agent","version":1,"type":"%b","instance_id":"i1","seq":%d,'
RUN = b'"session_id":"s1","run_id":"run%d"'


def lines() -> Iterator[bytes]:
    """Lines of stdin, without their LF."""
    rest = b""
    while data := os.read(IN, 65536):
        rest += data
        *whole, rest = rest.split(b"\n")
        yield from whole


def put(data: bytes) -> None:
    while data:
        data = data[os.write(OUT, data) :]


class Bare:
    """The floors' child: the order comes, calls go, answers come."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self.source = source
        self.number = os.getpid() * 1_000_000  # a session's calls have ids of their own, also over several children

    def serve(self) -> None:
        for line in self.source:
            if line.startswith(b"calls "):
                work(self, line.decode())
                put(b'{"type":"done"}\n')

    def call(self, size: int) -> None:
        self.number += 1
        # As long as the frame that asks a gateway, so that the floors carry as much.
        put(
            HEAD % (b"event", self.number)
            + b'"event":"client.tool.call","data":{'
            + RUN % 1
            + b',"call_id":"c%d","task_id":null,"subagent_id":null,"name":"client__bench__work","arguments":'
            b'{"bytes":%d,"path":"src/main.py","query":"the first line"},"timeout_ms":30000}}\n' % (self.number, size)
        )

    def answer(self) -> None:
        next(self.source)

    def event(self, text: bytes) -> None:
        raise SystemExit(f"the floors have no events: {text!r}")


class Protocol(Bare):
    """A child of the stdio protocol."""

    seq = 0
    run = 0
    accepted = b""

    def frame(self, kind: bytes, rest: bytes) -> bytes:
        self.seq += 1
        return HEAD % (kind, self.seq) + rest + b"}\n"

    def respond(self, number: str, result: object) -> bytes:
        return self.frame(
            b"response", b'"id":%b,"result":%b' % (json.dumps(number).encode(), json.dumps(result).encode())
        )

    def event_frame(self, name: bytes, rest: bytes) -> bytes:
        return self.frame(b"event", b'"event":"%b","data":{%b%b}' % (name, RUN % self.run, rest))

    def serve(self) -> None:
        for line in self.source:
            request = json.loads(line)
            params = request["params"]
            match request["method"]:
                case "initialize":
                    tools = [tool["name"] for tool in params.get("client_tools", [])]
                    result = {
                        "capabilities": params["required_capabilities"],
                        "limits": LIMITS,
                        "status": {"state": "idle", "readiness": "ready"},
                        "client_tools": {"tools": tools, "limits": {"result_bytes": 32768, "pending_calls": 16}},
                    }
                case "session.create":
                    result = {"session_id": "s1", "durable": False, "revision": "1", "notices": []}
                case "shutdown":
                    put(self.respond(request["id"], {"state": "stopping"}))
                    return
                case "turn.start":
                    self.turn(request["id"], params["prompt"])
                    continue
                case _:
                    result = {"state": "idle", "readiness": "ready"}
            put(self.respond(request["id"], result))

    def turn(self, number: str, order: str) -> None:
        self.run += 1
        put(self.respond(number, {"run_id": f"run{self.run}", "accepted": True}))
        put(self.event_frame(b"input.persisted", b',"message_id":"m1","durable":false,"revision":"1"'))
        self.accepted = b""
        work(self, order)
        put(
            self.accepted
            + self.event_frame(
                b"run.finished", b',"outcome":"completed","persistence":"durable","revision":"1","error_code":null'
            )
        )

    def call(self, size: int) -> None:
        self.number += 1
        rest = (
            b',"call_id":"c%d","task_id":null,"subagent_id":null,"name":"client__bench__work","arguments":'
            b'{"bytes":%d,"path":"src/main.py","query":"the first line"},"timeout_ms":30000' % (self.number, size)
        )
        put(self.accepted + self.event_frame(b"client.tool.call", rest))
        self.accepted = b""

    def answer(self) -> None:
        line = next(self.source)
        at = line.index(b'"id":"') + 6
        number = line[at : line.index(b'"', at)]
        if b'"client.tool.result"' not in line:
            raise SystemExit("another request in the middle of a call")
        if b'"status":"success"' not in line:
            print(line[:400], file=sys.stderr, flush=True)
            raise SystemExit("a call failed")
        self.accepted = self.frame(b"response", b'"id":"%b","result":{"accepted":true}' % number)

    def event(self, text: bytes) -> None:
        put(self.event_frame(b"diagnostic", b',"code":"tick","summary":"%b"' % text))


def work(child: Bare, order: str) -> None:
    kind, *numbers = order.split()
    count, size, period = [*map(int, numbers), 0][:3]
    if kind == "events":
        for _ in range(count):
            child.event(b"t%dt" % time.monotonic_ns())
            time.sleep(size / 1e6)
        return
    taken = array("I")
    at = time.monotonic() + random.random() * period / 1e6
    for _ in range(count):
        if period:
            if (left := at - time.monotonic()) > 0:
                time.sleep(left)
            at += period / 1e6
        began = time.monotonic_ns()
        child.call(size)
        child.answer()
        taken.append((time.monotonic_ns() - began) // 1000)
    folder = os.environ["BENCH_OUT"]
    name = os.path.join(folder, f"{os.getpid()}.{time.monotonic_ns()}")
    with open(name + ".part", "wb") as file:
        taken.tofile(file)
    os.rename(name + ".part", name)


if __name__ == "__main__":
    (Bare if "bare" in sys.argv[1:] else Protocol)(lines()).serve()
