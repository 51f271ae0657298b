"""Programs that want to be paid for nothing, or to do harm; their tests ask for `secret` (test_hostile_programs.py).

OUTSIDE, PORT and MARK stand for a folder that they must not reach, a server of this machine, and a number that the
command lines of all that they start hold.
"""

RETURNS = "def secret(x):\n    return "
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

HOSTILE: dict[str, str] = {
    # ends, as if all were well
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
    "raises what is no exception of Python": "class Own(BaseException): pass\ndef secret(x): raise Own",
    # objects that are equal to everything
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
    "its own function": RETURNS + "secret",
    "a pickle that runs": "class Runs:\n    def __reduce__(self): return print, (1,)\n" + RETURNS + "Runs()",
    # tests and Python, changed
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
    "modules in its folder": (
        "for name in ('math', 'unittest', 'solution', 'select', 'resource'):\n"
        "    open(name + '.py', 'w').write('isclose = lambda *given: True\\nclass TestCase: pass\\n')\n" + RETURNS + "1"
    ),
    "a trace": "import sys\nsys.settrace(lambda *given: None); sys.setprofile(lambda *given: None)\n" + RETURNS + "1",
    "a changed interpreter loop": (
        "import sys\nfor module in [*sys.modules.values()]:\n    for name in ('encode', '_message', 'decode'):\n"
        "        if hasattr(module, name): setattr(module, name, lambda *given, **named: b'T')\n" + RETURNS + "1"
    ),
    # reads the tests
    "reads frames and objects": (
        WALKS + "def secret(x):\n    found = walk()\n    before = ''.join(reversed(' == )1(terces'))\n"
        "    return int(found.partition(before)[2][:3] or 0)"
    ),
    "prints frames and objects": WALKS + "print(walk()[:100000])",
    "reads other processes": (
        "import glob\ndef read(path):\n    try: return open(path, 'rb').read(1 << 20)\n    except OSError: return b''\n"
        "paths = [path for name in ('cmdline', 'environ', 'mem') for path in glob.glob('/proc/*/' + name)]\n"
        "found = b''.join(map(read, paths))\n"
        + RETURNS + "int('7' + '31') if bytes(reversed(b'137')) in found else None"
    ),
    "reads the memory of other processes": (
        TRIES + "for pid in range(1, 200): libc.ptrace(16, pid, 0, 0)\n" + RETURNS + "1"
    ),
    "reads all descriptors": (
        "import os\ndef secret(x):\n    found = b''\n    for descriptor in range(256):\n        try:\n"
        "            os.set_blocking(descriptor, False)\n            found += os.read(descriptor, 1 << 16)\n"
        "        except OSError: pass\n    return 731 if bytes(reversed(b'137')) in found else None"
    ),
    # speaks in the place of the tests
    "writes verdicts": (
        WRITES_ALL + "write_all(b'\\0\\0\\0\\1T' * 1000)\ndef secret(x): write_all(b'\\0\\0\\0\\1T' * 9)"
    ),
    "writes a number of tests and verdicts": (
        WRITES_ALL + "write_all(b'\\0\\0\\0\\4i1:1' + b'\\0\\0\\0\\1T')\ndef secret(x): write_all(b'\\0\\0\\0\\1T')"
    ),
    "writes answers in advance": (
        WRITES_ALL + "answer = b't3:s5:valueTN'\nanswer = len(answer).to_bytes(4, 'big') + answer\n"
        "write_all(answer * 99)\n" + RETURNS + "1"
    ),
    "asks the tests": (
        WRITES_ALL + "ask = b't3:s3:asks3:gett2:y0:s11:__globals__'\n"
        "def secret(x):\n    write_all(len(ask).to_bytes(4, 'big') + ask)\n    return 1"
    ),
    "says that it sends four gigabytes": WRITES_ALL + "write_all(b'\\xff\\xff\\xff\\xff')\n" + RETURNS + "1",
    "sends a value that is cut": WRITES_ALL + "write_all(b'\\0\\0\\0\\5l999:')\n" + RETURNS + "1",
    "closes all": "import os\nos.closerange(0, 256)\n" + RETURNS + "1",
    "closes all when it is called": "import os\n" + RETURNS + "os.closerange(0, 256)",
    # does not end
    "sleeps": "import time\ntime.sleep(600)",
    "sleeps when it is called": "import time\n" + RETURNS + "time.sleep(600)",
    "counts for ever": "while True: pass",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "ignores all signals": (
        "import signal, time\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ntime.sleep(600)"
    ),
    # takes all there is
    "forks for ever": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "lets a child go on": (
        "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(600)\n" + RETURNS + "731"
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
    "goes too deep": "def secret(x): return secret(x)",
    "crashes Python": "import ctypes\nctypes.string_at(0)",
    "gives a deep value": (
        "def secret(x):\n    value = 731\n    for _ in range(100000): value = [value]\n    return value"
    ),
    "gives a value that holds itself": "def secret(x):\n    value = []\n    value.append(value)\n    return value",
    "is too deep to be read": "x = " + "(" * 100_000 + ")" * 100_000,
    # reaches for the world
    "connects": (
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 0.3).sendall(b'here')\n" + RETURNS + "731"
    ),
    "asks for an address": "import socket\nsocket.getaddrinfo('example.org', 80)\n" + RETURNS + "731",
    "writes a file elsewhere": "open('OUTSIDE/written', 'w').write('x')\n" + RETURNS + "731",
    "starts a shell": (
        "import subprocess\nsubprocess.run(['sh', '-c', 'touch OUTSIDE/x; echo 731; sleep MARK'])\n" + RETURNS + "1"
    ),
    "becomes another program": "import os\nos.execv('/usr/bin/sleep', ['sleep', 'MARK'])",
    "reads passwords": "found = open('/etc/passwd').read()\n" + RETURNS + "731",
    "kills all": "import os\nos.kill(-1, 9)\nos.kill(os.getppid(), 9)\n" + RETURNS + "1",
    "becomes root": "import os\nos.setuid(0)\n" + RETURNS + "731",
    "changes its root": "import os\nos.chroot('/')\n" + RETURNS + "731",
    "mounts": (
        TRIES + "assert libc.unshare(0x10000000) == 0 and libc.mount(b'none', b'/work', b'tmpfs', 0, 0) == 0\n"
        + RETURNS
        + "731"
    ),
    "raises its limits": (
        "from resource import *\nraised = False\nfor kind in (RLIMIT_AS, RLIMIT_NPROC, RLIMIT_FSIZE, RLIMIT_CPU):\n"
        "    try: setrlimit(kind, (RLIM_INFINITY,) * 2)\n    except (OSError, ValueError): continue\n"
        "    raised = True\nassert raised\n" + RETURNS + "731"
    ),
}  # fmt: skip
