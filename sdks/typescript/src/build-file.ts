/** What is to be built, as the first file of the archive that is sent. */

const NAME = ".agentkernel-build.json";
const BLOCK = 512;

/** The archive of a build: its first file says what is wanted, then come those of `context`. */
export async function* withBuildFile(
  wanted: Record<string, unknown>,
  context?: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const content = Buffer.from(JSON.stringify(wanted));
  yield header(content.length);
  yield content;
  yield Buffer.alloc(-content.length & (BLOCK - 1));
  if (context === undefined) yield Buffer.alloc(2 * BLOCK);
  else yield* context;
}

function header(size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(NAME, 0, "latin1");
  block.write("0000600\0", 100, "latin1");
  block.write("0000000\0", 108, "latin1");
  block.write("0000000\0", 116, "latin1");
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124, "latin1");
  block.write("00000000000\0", 136, "latin1");
  block.write("        0", 148, "latin1");
  block.write("ustar\x0000", 257, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}
