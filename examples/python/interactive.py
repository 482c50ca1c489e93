"""Talk to a program: first line by line, then on a terminal."""

from agentkernel import Sandbox

with Sandbox.create() as sandbox:
    # An interpreter that stays, with its variables. `-u`: it answers at once.
    with sandbox.stream(["python3", "-u", "-i", "-q"], stdin=True) as python:
        for line in ("x = 6", "print('answer:', x * 7)"):
            python.write(line + "\n")
        answer = ""
        while not answer.endswith("\n"):  # a line may come in several pieces
            chunk = python.read()
            if chunk is None:
                raise SystemExit("it has ended")
            if chunk.stream == "stdout":  # its prompts are on stderr
                answer += chunk.text
        print(answer, end="")
        python.close_stdin()
        python.wait()

    # With a terminal, as a person would see it: rows and columns, and Ctrl-C.
    program = "import os, time; print(*os.get_terminal_size()); time.sleep(1000)"
    with sandbox.stream(["python3", "-c", program], pty=(24, 80)) as terminal:
        size = terminal.read()
        print("terminal:", size.text.strip() if size else "none")
        terminal.write("\x03")  # Ctrl-C
        print("outcome:", terminal.wait().outcome)
