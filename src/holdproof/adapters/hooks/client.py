"""The hook itself: read one event, number it, hand it to the recorder; runs before and after every tool call.

Rules:
- It imports little: a hook costs its agent time at every call. Of `json` and `socket` it takes the parts in C alone;
  with what stands around them they cost more than an empty Python, and so does `typing`.
- It never breaks the agent: whatever goes wrong is one line on stderr and exit code 0. Only a policy stops a call, and
  only by what the agent's own protocol says for that. Where policies were to decide and could not, the agent is told to
  ask.
- Each event of a session gets the next number before anything else can fail, so a lost event leaves a hole that the
  recorder finds. The number is taken under a lock of the file system: hooks run side by side.
- Without a recorder the event is durable in the spool before the hook returns, and a recorder is started.
"""

import fcntl
import os
import sys
import time

try:
    from _json import encode_basestring_ascii as _quoted
    from _json import make_scanner as _make_scanner
    from _socket import AF_UNIX, SOCK_STREAM, socket
except ImportError:  # not CPython: the public modules, at their price
    from json.decoder import JSONDecoder
    from json.encoder import encode_basestring_ascii as _quoted
    from socket import AF_UNIX, SOCK_STREAM, socket  # type: ignore[assignment]

    _scan = JSONDecoder().scan_once  # type: ignore[attr-defined]
else:

    class _Grammar:
        """What `json.JSONDecoder` tells its scanner."""

        strict = True
        object_hook = object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = float

    _scan = _make_scanner(_Grammar)  # type: ignore[arg-type]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

Message = dict[str, object]

PROTOCOL = 1
SOCKET = "recorder.sock"
LOCK = "recorder.lock"
ERROR = "recorder.error"
SPOOL = "spool"
NUMBERS = "numbers"
SUBJECT = "HOLDPROOF_SUBJECT"
_ANSWER_S = 20.0
"""How long the recorder may take: longer than a busy store, shorter than the timeouts of the agents (60 s)."""
_STARTING_S = 30.0
"""How long a call that policies decide about waits for a recorder to start."""
_PAUSE_S = 0.1
_LONGEST_NAME = 120
_BLANKS = " \t\n\r"
LAUNCH = "import sys; sys.path.append(sys.argv[1]); import client; sys.exit(client.main(sys.argv[3:]))"
"""What installed hooks run, after the folder of this file and `hook`: without the package and without `site`."""


class Options:
    """What a hook's command line says."""

    def __init__(self, words: list[str]) -> None:
        """Read the words after `holdproof hook`."""
        self.tool = ""
        self.gate = False
        self.values: dict[str, str] = {}
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if word == "--gate":
                self.gate = True
            elif word.startswith("--"):
                self.values[name] = value if equals else next(rest, "")
            else:
                self.tool = self.tool or word

    def state(self) -> str:
        """Return the folder that hooks and recorder share."""
        folder = self.values.get("--state")
        if folder:
            return folder
        # Installed hooks name the folder; only a call by hand pays for this import.
        paths = _module("holdproof.config").Paths
        return str(paths.find(self.values.get("--home")).state / "hooks")


def main(words: list[str]) -> int:
    """Record the event on standard input; return the exit code, which is 0."""
    event: Message = {}
    options = Options(words)
    try:
        event, text = _event(sys.stdin.buffer.read())
        answer = _record(options, event, text)
    except Exception as error:
        _say(f"not recorded: {type(error).__name__}: {error}")
        answer = None
    try:
        answer = _undecided(options, event) if answer is None else answer
        sys.stdout.write(str(answer.get("stdout", "")))
        sys.stderr.write(str(answer.get("stderr", "")))
    except Exception as error:
        _say(f"not answered: {type(error).__name__}: {error}")
    return 0


def _record(options: Options, event: Message, text: str) -> Message | None:
    """Number an event and have it written; return the recorder's answer, None where there is none."""
    state = options.state()
    os.makedirs(f"{state}/{SPOOL}", mode=0o700, exist_ok=True)
    os.makedirs(f"{state}/{NUMBERS}", mode=0o700, exist_ok=True)
    session = str(event.get("session_id") or event.get("conversation_id") or "none")
    number = _next_number(f"{state}/{NUMBERS}/{_file_name(options.tool, session)}")
    # When it was seen: outside every transaction, so the log's clock cannot say it.
    at = time.time_ns()
    line = _line(options, session, str(event.get("cwd") or os.getcwd()), f'"n": {number}, "at": {at}, "event": {text}')
    answer = _send(state, line)
    if answer is None:
        _wake(state, options)
        # Only where somebody decides about the call, is it worth waiting for a recorder to start.
        answer = _wait(state, line) if options.gate and _is_call(event) else None
    if answer is None or not answer.get("recorded"):
        _spool(state, at, line)
        _say(_reason(state, answer))
    return answer


def _line(options: Options, session: str, cwd: str, rest: str) -> bytes:
    """Return the message to the recorder, as JSON on one line."""
    subject = options.values.get("--subject") or os.environ.get(SUBJECT)
    texts = {
        "tool": options.tool,
        "agent": options.values.get("--agent") or options.tool,
        "ns": options.values.get("--ns") or "main",
        "session": session,
        "cwd": cwd,
    }
    fields = [f'"{name}": {_quoted(value)}' for name, value in texts.items()]
    fields.append(f'"v": {PROTOCOL}, "gate": {"true" if options.gate else "false"}')
    fields.append(f'"subject": {_quoted(subject) if subject else "null"}')
    return f"{{{', '.join(fields)}, {rest}}}".encode()


def _event(data: bytes) -> tuple[Message, str]:
    """Return an event, and its JSON on one line."""
    event = _parsed(data)
    if event is None:
        return _odd_event(data)
    # Between the quotes of JSON there is no line break: those that are there stand between its parts.
    return event, data.decode().strip(_BLANKS).replace("\n", " ").replace("\r", " ")


def _parsed(data: bytes) -> Message | None:
    """Return the JSON object that these bytes are; None for anything else."""
    try:
        text = data.decode().strip(_BLANKS)
        value, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        return None
    return value if isinstance(value, dict) and end == len(text) else None


def _odd_event(data: bytes) -> tuple[Message, str]:
    """Return an event in another encoding; what is no JSON object is recorded as the text it is."""
    json = _module("json")
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        event = {"unparsed": data.decode("utf-8", "replace")}
    return event, json.dumps(event)


def _is_call(event: Message) -> bool:
    """Return whether an event asks for a tool call, in the words of any of the agents."""
    name = str(event.get("hook_event_name", ""))
    return name in {"PreToolUse", "BeforeTool"} or name.startswith(("before", "pre"))


def _file_name(tool: str, session: str) -> str:
    """Return a name that is a file's in any file system."""
    safe = "".join(each if each.isalnum() or each in "-_" else "_" for each in f"{tool}-{session}")
    return safe[:_LONGEST_NAME]


def _next_number(path: str) -> int:
    """Take the next number of a session; numbers begin at 1."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        text = os.read(handle, 32)
        number = int(text) + 1 if text.strip().isdigit() else 1
        os.pwrite(handle, b"%d\n" % number, 0)
        return number
    finally:
        os.close(handle)


def _send(state: str, line: bytes) -> Message | None:
    """Hand an event to the recorder and return its answer; None where there is no recorder."""
    here = os.getcwd()
    try:
        # The name of a socket has a hundred characters at most, and a state folder may have more: named from inside.
        os.chdir(state)
        connection = socket(AF_UNIX, SOCK_STREAM)
        try:
            connection.settimeout(_ANSWER_S)
            connection.connect(SOCKET)
            connection.sendall(line + b"\n")
            pieces: list[bytes] = []
            while piece := connection.recv(65_536):
                pieces.append(piece)
        finally:
            connection.close()
    except OSError:
        return None
    finally:
        os.chdir(here)
    return _parsed(b"".join(pieces))


def _wait(state: str, line: bytes) -> Message | None:
    until = time.monotonic() + _STARTING_S
    while time.monotonic() < until:
        time.sleep(_PAUSE_S)
        answer = _send(state, line)
        if answer is not None:
            return answer
    return None


def _spool(state: str, at: int, line: bytes) -> None:
    """Store an event until a recorder takes it; durable when it returns."""
    name = f"{at:020d}-{os.getpid()}"
    target = f"{state}/{SPOOL}/{name}.json"
    handle = os.open(f"{target}.part", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(handle)
    except OSError:
        os.unlink(f"{target}.part")
        raise
    os.rename(f"{target}.part", target)


def _wake(state: str, options: Options) -> None:
    """Start a recorder in the background, unless one is starting or running."""
    handle = os.open(f"{state}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    finally:
        os.close(handle)
    words = [sys.executable, "-P", "-m", "holdproof.adapters.hooks.service", "--state", state]
    home = options.values.get("--home")
    words += ["--home", home] if home else []
    nowhere = os.open(os.devnull, os.O_RDWR)
    # In a session of its own, without the agent's pipes: an agent waits until its hook has closed them.
    actions = [(os.POSIX_SPAWN_DUP2, nowhere, each) for each in (0, 1, 2)]
    os.posix_spawn(sys.executable, words, os.environ, file_actions=actions, setsid=True)
    os.close(nowhere)


def _reason(state: str, answer: Message | None) -> str:
    """Say why an event waits; nothing where a recorder is only starting."""
    if answer is not None:
        return f"the event waits in the spool: {answer.get('error', 'the recorder could not write it')}"
    try:
        with open(f"{state}/{ERROR}", encoding="utf-8") as file:
            return f"the event waits in the spool: {file.read().strip()}"
    except OSError:
        return ""


def _undecided(options: Options, event: Message) -> Message:
    """Return what the agent is told about a call that policies were to decide, and nobody could ask them."""
    if not options.gate or not _is_call(event):
        return {}
    # Needed only here.
    tools = _module("holdproof.adapters.hooks.tools")
    reason = "Holdproof could not ask its policies; see `holdproof hook status`"
    return {"stdout": tools.answer(options.tool, event, "ask", reason)}


def _module(name: str) -> "ModuleType":
    """Import a module that few hooks need; an installed hook has no path to packages until here."""
    if "site" not in sys.modules:
        sys.path.append(os.path.abspath(f"{__file__}/../../../.."))
        __import__("site").main()
    __import__(name)
    return sys.modules[name]


def _say(text: str) -> None:
    if text:
        sys.stderr.write(f"holdproof: {text}\n")
