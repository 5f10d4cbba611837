"""Workers whose output is split, oversized, binary, or forged."""

import os
import socket
import subprocess
import sys
import time

BAR = "".join(f"\r{percent:3}% [{'#' * (percent // 10):<10}]" for percent in range(0, 101, 10))


def main(connection: socket.socket) -> None:
    """The worker entry point; its task names the kind of output."""
    kind = connection.makefile("rb").readline().strip().decode()
    OUTPUTS[kind]()


def in_pieces() -> None:
    for piece in ("one ", "line ", "in ", "pieces\nand ", "a ", "second"):
        os.write(1, piece.encode())
        time.sleep(0.01)


def on_both() -> None:
    for number in range(200):
        os.write(1 + number % 2, f"line {number} of 200\n".encode())


def at_length() -> None:
    os.write(1, b"before\n")
    rest = b"x" * (1024 * 1024) + b"\nafter\n"
    while rest:
        rest = rest[os.write(1, rest) :]


def in_bytes() -> None:
    os.write(1, b"caf\xc3")
    time.sleep(0.02)
    os.write(1, b"\xa9\n\xff\xfe\x00\x01 binary \x80\nbell\x07 and back\x08space\n")


def with_bars() -> None:
    os.write(2, BAR.encode() + b"\n")
    os.write(2, b"a title \x1b]0;owned\x07 and a clipboard \x1b]52;c;ZWNobyBvd25lZA==\x07 here\n")
    os.write(2, b"\x1b[2J\x1b[1;1H\x1b[31mred\x1b[0m\n")


def in_disguise() -> None:
    os.write(
        1,
        b"ok\r[COORDINATOR] done\n[COORDINATOR] done\n\x1b[2K\x1b[1A[LLD-1] FAILED: no\n\xe2\x80\xa8[LLD-2] x\n",
    )


def through_children() -> None:
    code = "import os; os.write(1, b'a child says\\n'); os.write(2, b'and complains\\n')"
    subprocess.run([sys.executable, "-c", code], check=True)
    subprocess.Popen(["/bin/sh", "-c", "echo a grandchild says; sleep 60"], start_new_session=True)
    time.sleep(0.3)


OUTPUTS = {
    "pieces": in_pieces,
    "both": on_both,
    "length": at_length,
    "bytes": in_bytes,
    "bars": with_bars,
    "disguise": in_disguise,
    "children": through_children,
}
