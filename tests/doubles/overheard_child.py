"""Runs a child and keeps what it reads: ``overheard_child.py FOLDER lives|dies COMMAND…``.

In the child's frames, ``<00012w>`` becomes text 12 of FOLDER/texts.json, ``a`` and ``b`` its halves. A program of its
own, on the standard library alone.
"""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

TOKEN = re.compile(rb"<(\d{5})([wab])>")


def keep(folder: Path, child_in: IO[bytes]) -> None:
    """Our stdin, to the child and to a file."""
    with (folder / f"stdin.{os.getpid()}").open("ab", buffering=0) as kept:
        while data := os.read(0, 65536):
            kept.write(data)
            try:
                child_in.write(data)
                child_in.flush()
            except OSError:
                return
    child_in.close()


def expand(folder: Path, line: bytes) -> bytes:
    """A frame with the texts in it."""
    if not TOKEN.search(line):
        return line
    texts: list[str] = json.loads((folder / "texts.json").read_text())

    def text(found: re.Match[bytes]) -> bytes:
        whole = texts[int(found.group(1))]
        part = {b"w": whole, b"a": whole[: len(whole) // 2], b"b": whole[len(whole) // 2 :]}[found.group(2)]
        return json.dumps(part)[1:-1].encode()

    return TOKEN.sub(text, line)


def main() -> int:
    folder, how, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    words = folder / "stderr.txt"
    if words.exists():
        os.write(2, words.read_bytes())
    if how == "dies":
        return 3
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        threading.Thread(target=keep, args=(folder, child.stdin), daemon=True).start()
        for line in child.stdout:
            sys.stdout.buffer.write(expand(folder, line))
            sys.stdout.buffer.flush()
        return child.wait()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
