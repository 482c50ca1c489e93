"""Put files and directories into a sandbox, watch them, and take them out again."""

import tempfile
from pathlib import Path

from agentkernel import Sandbox

with Sandbox.create() as sandbox, tempfile.TemporaryDirectory() as here:
    files = sandbox.files

    # One file.
    files.write("/work/hello.txt", "hello\n", parents=True)
    files.append("/work/hello.txt", "world\n")
    print(files.read("/work/hello.txt").split())
    for entry in files.list("/work"):
        print(entry.name, entry.type, entry.size, oct(entry.mode))

    # A whole directory, in and out. What comes out is never written outside of `out`.
    project = Path(here, "project")
    project.mkdir()
    (project / "main.py").write_text("open('result', 'w').write(str(6 * 7))\n")
    files.upload_tree(project, "/work/project")
    sandbox.exec(["python3", "main.py"], cwd="/work/project", check=True)
    files.download_tree("/work/project", Path(here, "out"))
    print("result:", Path(here, "out", "result").read_text())

    # Changes as they happen. The first one says that it listens.
    for change in files.watch("/work"):
        if change.kind == "ready":
            files.remove("/work/hello.txt")
        else:
            print(change.kind, change.path)
            break
