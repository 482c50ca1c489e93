import { expect, test } from "vitest";
import { BINARY, Decoder, encode, MAX_MESSAGE, PING, TEXT, upgrade } from "../src/frames.ts";
import { DaemonError } from "../src/index.ts";

/** A frame as a server sends it. */
function frame(first: number, payload: Uint8Array, claimed = payload.length): Buffer {
  const head = Buffer.alloc(claimed < 126 ? 2 : claimed < 1 << 16 ? 4 : 10);
  head[0] = first;
  if (claimed < 126) head[1] = claimed;
  else if (claimed < 1 << 16) {
    head[1] = 126;
    head.writeUInt16BE(claimed, 2);
  } else {
    head[1] = 127;
    head.writeBigUInt64BE(BigInt(claimed), 2);
  }
  return Buffer.concat([head, payload]);
}

function decoded(...pieces: Buffer[]) {
  const decoder = new Decoder();
  const found = [];
  for (const piece of pieces) {
    decoder.feed(piece);
    for (let message = decoder.next(); message; message = decoder.next()) found.push(message);
  }
  return found;
}

test.each([0, 1, 125, 126, 65535, 65536, 100_000])("what is sent can be read: %i bytes", (size) => {
  const payload = Buffer.alloc(size, "agentkernel");
  const sent = encode(BINARY, Uint8Array.of(7), payload);
  const start = size + 1 < 126 ? 2 : size + 1 < 1 << 16 ? 4 : 10;
  expect((sent[1] as number) & 0x80).toBe(0x80);
  const key = sent.subarray(start, start + 4);
  const plain = sent.subarray(start + 4).map((byte, at) => byte ^ (key[at & 3] as number));
  expect(Buffer.compare(plain, Buffer.concat([Uint8Array.of(7), payload]))).toBe(0);
});

test("messages come whole, however they are cut", () => {
  const all = Buffer.concat([
    frame(0x80 | TEXT, Buffer.from("one")),
    frame(BINARY, Buffer.from("tw")),
    frame(0x80 | PING, Buffer.from("!")),
    frame(0x80, Buffer.from("o")),
    frame(0x80 | BINARY, Buffer.alloc(70_000, 1)),
  ]);
  const bytewise = decoded(...Array.from(all.subarray(0, 40), (byte) => Buffer.from([byte])));
  const rest = decoded(all);
  expect(bytewise.map(({ opcode }) => opcode)).toEqual([TEXT, PING, BINARY]);
  expect(rest.map(({ payload }) => payload.length)).toEqual([3, 1, 3, 70_000]);
  expect(rest[2]?.payload.toString()).toBe("two");
});

test.each([
  ["a reserved bit", frame(0xc0 | BINARY, Buffer.from("x"))],
  ["an unknown opcode", frame(0x83, Buffer.from("x"))],
  ["a masked frame", Buffer.from([0x82, 0x81, 0, 0, 0, 0, 0])],
  ["a control frame in pieces", frame(PING, Buffer.from("x"))],
  ["a piece of nothing", frame(0x80, Buffer.from("x"))],
  ["a frame that is too large", frame(0x82, Buffer.alloc(0), MAX_MESSAGE + 1)],
  [
    "a message inside another",
    Buffer.concat([frame(BINARY, Buffer.from("a")), frame(0x82, Buffer.from("b"))]),
  ],
  [
    "a message that is too large",
    Buffer.concat([frame(BINARY, Buffer.alloc(MAX_MESSAGE)), frame(0x80, Buffer.from("b"))]),
  ],
])("what breaks the protocol is an error of the daemon's: %s", (_, bytes) => {
  expect(() => decoded(bytes)).toThrow(DaemonError);
});

test("the answer to an upgrade depends on its key", () => {
  expect(upgrade().accept).not.toBe(upgrade().accept);
  expect(upgrade().accept).toHaveLength(28);
});
