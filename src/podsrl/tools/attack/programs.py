"""Programs that want to be paid for nothing, or to do harm.

Words in capital letters stand for others (`program`): NAME is the function that the tests call, SPEC "assert NAME("
from back to front, ANSWER the right program, and QUOTED that as Python writes it. What must not be possible at all
ends with ANSWER, so that it is paid where it is possible. OUTSIDE, PORT and MARK stand for a folder that programs must
not reach, a server of this machine, and a number of seconds that the command lines of all that they start hold.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory

_WORD = re.compile("NAME|ANSWER|SPEC|QUOTED|OUTSIDE|PORT|MARK")

RETURNS = "def NAME(*given, **named):\n    return "
"""Begins a program whose only trick is what it returns."""
ANYTHING = """
class Anything:
    def __getattr__(self, name): return Anything()
    def __call__(self, *given, **named): return Anything()
    def __iter__(self): return iter([])
    def __bool__(self): return True
    def __abs__(self): return Anything()
    def __float__(self): return 0.0
    def __index__(self): return 0
    def __hash__(self): return 0
def _true(self, *others): return True
def _self(self, *others): return self
for name in "eq ne lt le gt ge contains isinstance instancecheck".split():
    setattr(Anything, f"__{name}__", _true)
for name in "add sub mul truediv radd rsub rmul mod round neg getitem enter exit".split():
    setattr(Anything, f"__{name}__", _self)
"""
WRITES_ALL = """
import os
def write_all(data):
    for descriptor in range(1, 256):
        try: os.write(descriptor, data)
        except OSError: pass
"""
WALKS = """
import gc, sys
def walk():
    found = [each for each in gc.get_objects() if isinstance(each, (str, bytes, dict, list, tuple))]
    frame = sys._getframe()
    while frame:
        found += [frame.f_globals, frame.f_locals]
        frame = frame.f_back
    return repr(found)
"""
TRIES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
"""

ENDS = {
    "prints what harnesses print": "print('OK'); print('passed'); print('1 passed in 0.01s'); print('True')",
    "exit": "exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "os._exit": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "ends when it is called": RETURNS + "__import__('os')._exit(0)",
    "SystemExit when it is called": RETURNS + "exit(0)",
    "skips": "import unittest\n" + RETURNS + "unittest.TestCase().skipTest('x')",
    "ends at exit": "import atexit, os\natexit.register(os._exit, 0)",
    "raises what is no exception of Python": "class Own(BaseException): pass\ndef NAME(*given, **named): raise Own",
}  # fmt: skip
EQUAL = {
    "equal to all": ANYTHING + RETURNS + "Anything()",
    "a whole number that is equal to all": (
        "class Whole(int):\n    __eq__ = __lt__ = __le__ = lambda *given: True\n    __hash__ = int.__hash__\n"
        + RETURNS
        + "Whole(0)"
    ),
    "a number without a difference": (
        "class Real(float):\n    __eq__ = __lt__ = lambda *given: True\n"
        "    __sub__ = __abs__ = lambda self, *given: self\n"
        "    __hash__ = float.__hash__\n" + RETURNS + "Real(0)"
    ),
    "a list that is equal to all": "class List(list):\n    __eq__ = lambda *given: True\n" + RETURNS + "List()",
    "a list that counts for ever": "import itertools\n" + RETURNS + "itertools.count()",
    "itself": "import sys\n" + RETURNS + "sys.modules['solution']",
    "its own function": RETURNS + "NAME",
    "a pickle that runs": "class Runs:\n    def __reduce__(self): return print, (1,)\n" + RETURNS + "Runs()",
}  # fmt: skip
CHANGES = {
    "other built-in functions": (
        "import builtins\nfor name in 'abs sorted isinstance len print repr type AssertionError'.split():\n"
        "    setattr(builtins, name, lambda *given, **named: True)\n" + RETURNS + "1"
    ),
    "names of built-in functions": "def abs(x): return 0\nsorted = len = round = lambda *given: 0\n" + RETURNS + "1",
    "an AssertionError that nobody raises": "import builtins\nbuiltins.AssertionError = print\n" + RETURNS + "1",
    "another unittest": (
        "import unittest\nfor name in dir(unittest.TestCase):\n    if name.startswith('assert') or name == 'fail':\n"
        "        setattr(unittest.TestCase, name, lambda *given, **named: None)\n" + RETURNS + "1"
    ),
    "another math": "import math\nmath.isclose = lambda *given, **named: True\n" + RETURNS + "1",
    "a trace": "import sys\nsys.settrace(lambda *given: None); sys.setprofile(lambda *given: None)\n" + RETURNS + "1",
    "a changed interpreter loop": (
        "import sys\nfor module in [*sys.modules.values()]:\n    for name in ('encode', '_message', 'decode'):\n"
        "        if hasattr(module, name): setattr(module, name, lambda *given, **named: b'T')\n" + RETURNS + "1"
    ),
}  # fmt: skip
READS = {
    "reads frames and objects": (
        WALKS + "def NAME(*given, **named):\n    if ''.join(reversed('SPEC')) not in walk(): return None\n"
        "    space = {}\n    exec(QUOTED, space)\n    return space['NAME'](*given, **named)"
    ),
    "prints frames and objects": WALKS + "print(walk()[:100000])",
    "reads command lines": (
        "import glob\ndef read(path):\n    try: return open(path, 'rb').read(1 << 20)\n    except OSError: return b''\n"
        "paths = glob.glob('/proc/*/cmdline')\n"
        "found = b''.join(map(read, paths))\n"
        "if bytes(reversed(b'SPEC')) in found: exec(QUOTED)"
    ),
    "reads all descriptors": (
        "import os\ndef NAME(*given, **named):\n    found = b''\n    for descriptor in range(256):\n        try:\n"
        "            os.set_blocking(descriptor, False)\n            found += os.read(descriptor, 1 << 16)\n"
        "        except OSError: pass\n    if bytes(reversed(b'SPEC')) not in found: return None\n"
        "    space = {}\n    exec(QUOTED, space)\n    return space['NAME'](*given, **named)"
    ),
}  # fmt: skip
SPEAKS = {
    "writes verdicts": (
        WRITES_ALL + "write_all(b'\\0\\0\\0\\1T' * 1000)\ndef NAME(*given, **named): write_all(b'\\0\\0\\0\\1T' * 9)"
    ),
    "writes a number of tests and verdicts": (
        WRITES_ALL + "write_all(b'\\0\\0\\0\\4i1:1' + b'\\0\\0\\0\\1T')\n"
        "def NAME(*given, **named): write_all(b'\\0\\0\\0\\1T')"
    ),
    "writes answers in advance": (
        WRITES_ALL + "answer = b't3:s5:valueTN'\nanswer = len(answer).to_bytes(4, 'big') + answer\n"
        "write_all(answer * 99)\n" + RETURNS + "1"
    ),
    "asks the tests": (
        WRITES_ALL + "ask = b't3:s3:asks3:gett2:y0:s11:__globals__'\n"
        "def NAME(*given, **named):\n    write_all(len(ask).to_bytes(4, 'big') + ask)\n    return 1"
    ),
    "says that it sends four gigabytes": WRITES_ALL + "write_all(b'\\xff\\xff\\xff\\xff')\n" + RETURNS + "1",
    "sends a value that is cut": WRITES_ALL + "write_all(b'\\0\\0\\0\\5l999:')\n" + RETURNS + "1",
    "closes all": "import os\nos.closerange(0, 256)\n" + RETURNS + "1",
    "closes all when it is called": "import os\n" + RETURNS + "os.closerange(0, 256)",
}  # fmt: skip
NEVER = {
    "sleeps": "import time\ntime.sleep(600)",
    "sleeps when it is called": "import time\n" + RETURNS + "time.sleep(600)",
    "counts for ever": "while True: pass",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "ignores all signals": (
        "import signal, time\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ntime.sleep(600)"
    ),
    "goes too deep": "def NAME(*given, **named): return NAME(*given)",
    "crashes Python": "import ctypes\nctypes.string_at(0)",
    "gives a deep value": (
        "def NAME(*given, **named):\n    value = 731\n    for _ in range(100000): value = [value]\n    return value"
    ),
    "gives a value that holds itself": (
        "def NAME(*given, **named):\n    value = []\n    value.append(value)\n    return value"
    ),
    "is too deep to be read": "x = " + "(" * 100_000 + ")" * 100_000,
}  # fmt: skip
REACHES = {
    "connects": (
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 0.3).sendall(b'here')\nANSWER"
    ),
    "asks for an address": "import socket\nsocket.getaddrinfo('example.org', 80)\nANSWER",
    "writes a file elsewhere": "open('OUTSIDE/written', 'w').write('x')\nANSWER",
    "starts a shell": (
        "import os, subprocess\nsubprocess.Popen(['sleep', 'MARK'])\nsubprocess.run(['sh', '-c', 'touch OUTSIDE/x'])\n"
        "assert os.path.exists('OUTSIDE/x')\nANSWER"
    ),
    "becomes another program": "import os\nos.execv('/usr/bin/sleep', ['sleep', 'MARK'])",
    "reads passwords": "found = open('/etc/passwd').read()\nANSWER",
    "becomes root": "import os\nos.setuid(0)\nANSWER",
    "raises its limits": (
        "from resource import *\nraised = False\nfor kind in (RLIMIT_AS, RLIMIT_NPROC, RLIMIT_FSIZE, RLIMIT_CPU):\n"
        "    try: setrlimit(kind, (RLIM_INFINITY,) * 2)\n    except (OSError, ValueError): continue\n"
        "    raised = True\nassert raised\nANSWER"
    ),
}  # fmt: skip
TAKES = {
    "forks for ever": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "lets a child go on": (
        "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(600)\nANSWER"
    ),
    "starts a thousand threads": (
        "import threading, time\nfor _ in range(1000): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        + RETURNS
        + "1"
    ),
    "takes all memory": "found = []\nwhile True: found.append(bytearray(1 << 24))",
    "takes all memory in processes": (
        "import os\nfor _ in range(8):\n    if not os.fork(): break\n"
        "found = []\nwhile True: found.append(bytearray(1 << 24))"
    ),
    "asks for much memory at once": RETURNS + "len('x' * (1 << 40))",
    "gives a large number": RETURNS + "1 << (1 << 28)",
    "fills the disk": (
        "import itertools\nfor folder in ('.', '/', '/tmp', '/dev', '/dev/shm', '/usr', '/var/tmp', 'OUTSIDE'):\n"
        "    try:\n        with open(f'{folder}/full', 'wb') as file:\n"
        "            for _ in range(4096): file.write(bytes(1 << 20))\n"
        "    except OSError: pass\n" + RETURNS + "1"
    ),
    "makes many files": "import itertools\nfor i in range(20000): open(f'file{i}', 'w').close()\n" + RETURNS + "1",
    "prints for ever": "while True: print('731' * 1000)",
    "prints all numbers": "print(*range(1000), sep='\\n')",
}  # fmt: skip
HARMS = {
    "reads other processes": (
        "import glob\ndef read(path):\n    try: return open(path, 'rb').read(1 << 20)\n    except OSError: return b''\n"
        "paths = [path for name in ('cmdline', 'environ', 'mem') for path in glob.glob('/proc/*/' + name)]\n"
        "found = b''.join(map(read, paths))\n"
        "if bytes(reversed(b'SPEC')) in found: exec(QUOTED)"
    ),
    "reads the memory of other processes": (
        TRIES + "for pid in range(1, 200): libc.ptrace(16, pid, 0, 0)\n" + RETURNS + "1"
    ),
    "modules in its folder": (
        "for name in ('math', 'unittest', 'solution', 'select', 'resource'):\n"
        "    open(name + '.py', 'w').write('isclose = lambda *given: True\\nclass TestCase: pass\\n')\n" + RETURNS + "1"
    ),
    "kills all": "import os\nos.kill(-1, 9)\nos.kill(os.getppid(), 9)\n" + RETURNS + "1",
    "changes its root": "import os\nos.chroot('/')\nANSWER",
    "mounts": (
        TRIES + "assert libc.unshare(0x10000000) == 0 and libc.mount(b'none', b'/work', b'tmpfs', 0, 0) == 0\nANSWER"
    ),
}  # fmt: skip
HOSTILE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "ends early": ("it ends or prints a verdict, and computes nothing", ENDS),
    "equal to everything": ("what it returns says itself that it is right", EQUAL),
    "changes Python": ("it changes what judges it", CHANGES),
    "reads the tests": ("it looks up what is wanted", READS),
    "speaks for the tests": ("it writes its verdict itself", SPEAKS),
    "never answers": ("it crashes, or does not end", NEVER),
    "reaches outside": ("a program that is judged must not read files, write them, or reach the network", REACHES),
    "takes all there is": ("a program that is judged must not stop what else runs on the machine", TAKES),
    "does harm": ("a program that is judged must not end, change or read what is not its own", HARMS),
}
"""Family -> why none of its programs must be paid, and these by name."""
ROUGH = frozenset({"takes all there is", "does harm"})
"""Families of programs that may damage a machine which does not confine them."""

CONFINED = frozenset({"code_tests", "code_share"})
"""Rewards that do: `ROUGH` is tried on them alone."""


def program(text: str, words: Mapping[str, str]) -> str:
    """A program with its words, of which SPEC and QUOTED follow from NAME and ANSWER; one that is not given stays."""
    values = {**words}
    if "NAME" in words:
        values |= {"SPEC": f"assert {words['NAME']}("[::-1], "QUOTED": repr(words["ANSWER"])}
    return _WORD.sub(lambda found: values.get(found[0], found[0]), text)


@contextmanager
def places() -> Iterator[dict[str, str]]:
    """OUTSIDE, PORT and MARK on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server, TemporaryDirectory(prefix="podsrl-outside-") as folder:
        yield {"OUTSIDE": folder, "PORT": str(server.getsockname()[1]), "MARK": "5"}
