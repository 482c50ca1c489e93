// Run many pieces of work at once, each in a sandbox of its own.
import { run } from "agentkernel";

const WORK = [10, 100, 1000, 10_000].map((n) => `print(sum(range(${n})))`);
const AT_ONCE = 2;

const answers: string[] = [];
const left = WORK.entries();

// More at once than the machine has processors only makes each of them slower.
async function worker(): Promise<void> {
  for (const [index, source] of left) {
    const result = await run(["python3", "-c", source], { timeoutSeconds: 30 });
    answers[index] = result.ok ? result.stdout.trim() : `${result.outcome}: ${result.stderr}`;
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, worker));
for (const [index, source] of WORK.entries()) console.log(source, "->", answers[index]);
