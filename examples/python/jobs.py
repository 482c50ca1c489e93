"""Start something that goes on without you, and come back to it later."""

from agentkernel import Sandbox

with Sandbox.create(ttl_seconds=600) as sandbox:
    job = sandbox.jobs.start("for i in 1 2 3; do echo line $i; sleep 0.1; done")

    # Its id is all that another process needs, also after the daemon was restarted.
    id = job.id

    # Read a little, remember where you were, and leave: the job does not mind.
    seen = 0
    for chunk in job.output():
        print(chunk.text, end="")
        seen = chunk.offset + len(chunk.data)
        break

    # Later: from there to its end.
    later = sandbox.jobs.get(id)
    for chunk in later.output(stdout_offset=seen):
        print(chunk.text, end="")
    print("exit code:", later.wait().exit_code)

    # One that is in the way.
    server = sandbox.jobs.start(["sleep", "1000"])
    server.kill()
    print("ended by signal", server.wait().signal)
    print([job.info.state for job in sandbox.jobs.list()])
