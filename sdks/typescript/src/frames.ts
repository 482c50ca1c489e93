/** WebSocket frames (RFC 6455, client side) as bytes and back, without any input or output. */

import { createHash, randomBytes } from "node:crypto";
import { DaemonError } from "./error-types.ts";

export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;
export const MAX_MESSAGE = 4 << 20;

const KNOWN = new Set([0, TEXT, BINARY, CLOSE, PING, PONG]);
// RFC 6455, 1.3: what both ends put behind the key.
const MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

export interface Message {
  opcode: number;
  payload: Buffer;
}

/** The headers that ask for a WebSocket, and the answer that has to come. */
export function upgrade(): { headers: Record<string, string>; accept: string } {
  const key = randomBytes(16).toString("base64");
  return {
    headers: {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": key,
    },
    accept: createHash("sha1")
      .update(key + MAGIC)
      .digest("base64"),
  };
}

/** One whole message as one masked frame. */
export function encode(opcode: number, ...parts: Uint8Array[]): Buffer {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  const start = size < 126 ? 2 : size < 1 << 16 ? 4 : 10;
  const frame = Buffer.allocUnsafe(start + 4 + size);
  frame[0] = 0x80 | opcode;
  if (start === 2) {
    frame[1] = 0x80 | size;
  } else if (start === 4) {
    frame[1] = 0x80 | 126;
    frame.writeUInt16BE(size, 2);
  } else {
    frame[1] = 0x80 | 127;
    frame.writeBigUInt64BE(BigInt(size), 2);
  }
  const key = randomBytes(4);
  key.copy(frame, start);
  let at = start + 4;
  for (const part of parts) {
    frame.set(part, at);
    at += part.length;
  }
  for (let index = 0; index < size; index++) {
    const place = start + 4 + index;
    frame[place] = (frame[place] as number) ^ (key[index & 3] as number);
  }
  return frame;
}

/** Bytes in, whole messages out. Holds at most one message and what was fed. */
export class Decoder {
  #buffer: Buffer = Buffer.alloc(0);
  #opcode = 0;
  #parts: Buffer[] = [];
  #size = 0;

  feed(data: Buffer): void {
    this.#buffer = this.#buffer.length === 0 ? data : Buffer.concat([this.#buffer, data]);
  }

  /** The next message, or undefined: more bytes are needed. */
  next(): Message | undefined {
    for (;;) {
      const frame = this.#frame();
      if (frame === undefined) return undefined;
      const { last, opcode, payload } = frame;
      if (opcode >= CLOSE) {
        if (!last || payload.length > 125) throw wrong("a control frame in pieces");
        return { opcode, payload };
      }
      if ((opcode === 0) === (this.#opcode === 0)) throw wrong("a message inside another");
      this.#opcode = this.#opcode || opcode;
      this.#parts.push(payload);
      this.#size += payload.length;
      if (this.#size > MAX_MESSAGE) throw wrong("a message that is too large");
      if (last) {
        const whole = this.#parts.length === 1 ? payload : Buffer.concat(this.#parts);
        const message = { opcode: this.#opcode, payload: whole };
        this.#opcode = 0;
        this.#parts = [];
        this.#size = 0;
        return message;
      }
    }
  }

  #frame(): { last: boolean; opcode: number; payload: Buffer } | undefined {
    const buffer = this.#buffer;
    if (buffer.length < 2) return undefined;
    const first = buffer.readUInt8(0);
    const second = buffer.readUInt8(1);
    const opcode = first & 0x0f;
    if (first & 0x70 || second & 0x80 || !KNOWN.has(opcode)) {
      throw wrong("a frame that was not agreed on");
    }
    let size = second & 0x7f;
    let start = 2;
    if (size >= 126) {
      start = size === 126 ? 4 : 10;
      if (buffer.length < start) return undefined;
      size = start === 4 ? buffer.readUInt16BE(2) : Number(buffer.readBigUInt64BE(2));
    }
    if (size > MAX_MESSAGE) throw wrong("a frame that is too large");
    if (buffer.length < start + size) return undefined;
    this.#buffer = buffer.subarray(start + size);
    return {
      last: (first & 0x80) !== 0,
      opcode,
      payload: buffer.subarray(start, start + size),
    };
  }
}

function wrong(what: string): DaemonError {
  return new DaemonError(`the daemon broke the stream's protocol: ${what}`);
}
