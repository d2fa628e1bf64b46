"""A program that serves a session over its standard input and output."""

import sys

import sterna as tvm
from sterna.rpc.files import SessionFolder
from sterna.rpc.serving import ServerPeer
from sterna.rpc.streams import PipeStream

tvm.register_func("test.add_one", lambda value: value + 1)
folder = SessionFolder()
ServerPeer(PipeStream(sys.stdin.buffer, sys.stdout.buffer), folder).serve()
folder.remove_all()
