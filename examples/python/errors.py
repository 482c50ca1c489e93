"""What can go wrong, and how each kind looks. They never look alike."""

import agentkernel
from agentkernel import AgentKernelError, Sandbox
from agentkernel.errors import CommandFailedError

with Sandbox.create() as sandbox:
    # The command failed: a result. Ask for an exception if you want one.
    print("exit code:", sandbox.exec("exit 3").exit_code)
    try:
        sandbox.exec("ls /nowhere", check=True)
    except CommandFailedError as error:
        print(error.code, "-", error.result.outcome, error.result.exit_code)

    # It took too long: a result as well, and everything it had started is gone.
    print("outcome:", sandbox.exec("sleep 1000", timeout_seconds=0.2).outcome)

    # A file is not there: also the exception that Python has for it.
    try:
        sandbox.files.read("/nowhere")
    except FileNotFoundError as error:
        print("file:", error)

    # The call itself is wrong. `hint` says what to do, `retryable` whether waiting helps.
    try:
        sandbox.files.write("relative/path", "x")
    except AgentKernelError as error:
        print(error.code, error.retryable, "-", error.message)

# There is no such sandbox (any more).
try:
    Sandbox.connect("nobody")
except AgentKernelError as error:
    print(error.code, "-", error.message)

# What is worth trying again says so.
for attempt in range(3):
    try:
        print(agentkernel.run("echo it works").stdout, end="")
        break
    except AgentKernelError as error:
        if not error.retryable or attempt == 2:
            raise
