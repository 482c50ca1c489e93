// Start something that goes on without you, and come back to it later.
import { Sandbox } from "agentkernel";

await using sandbox = await Sandbox.create({ ttlSeconds: 600 });
const job = await sandbox.jobs.start("for i in 1 2 3; do echo line $i; sleep 0.1; done");

// Its id is all that another process needs, also after the daemon was restarted.
const { id } = job;

// Read a little, remember where you were, and leave: the job does not mind.
let seen = 0;
for await (const chunk of job.output()) {
  process.stdout.write(chunk.text);
  seen = chunk.offset + chunk.data.length;
  break;
}

// Later: from there to its end.
const later = await sandbox.jobs.get(id);
for await (const chunk of later.output({ stdoutOffset: seen })) process.stdout.write(chunk.text);
console.log("exit code:", (await later.wait()).exitCode);

// One that is in the way.
const server = await sandbox.jobs.start(["sleep", "1000"]);
await server.kill();
console.log("ended by signal", (await server.wait()).signal);
console.log((await sandbox.jobs.list()).map(({ info }) => info.state));
