/** A WebSocket to the daemon. Not reading is the back-pressure: nothing is read ahead. */

import type { Duplex } from "node:stream";
import { BINARY, CLOSE, Decoder, encode, PING, PONG, TEXT } from "./frames.ts";

// How long a farewell may take before the connection is cut.
const FAREWELL_MS = 200;

/** Messages both ways. One reader at a time. */
export class WebSocket {
  #socket: Duplex;
  #decoder = new Decoder();
  #failure: Error | undefined;
  #ended = false;
  #closed = false;
  #wake: Array<() => void> = [];

  /** `socket` is read from here on alone; `head` is what came behind the answer to the upgrade. */
  constructor(socket: Duplex, head: Buffer) {
    this.#socket = socket;
    if (head.length > 0) this.#decoder.feed(head);
    // Listening to `readable` keeps the socket paused: it holds no more than its own buffer.
    socket.on("readable", () => this.#woken());
    socket.on("drain", () => this.#woken());
    socket.on("end", () => {
      this.#ended = true;
      this.#woken();
    });
    socket.on("error", (error) => {
      this.#failure ??= error;
      this.#woken();
    });
    socket.on("close", () => {
      this.#ended = true;
      this.#woken();
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  async sendText(text: string): Promise<void> {
    await this.#write(encode(TEXT, Buffer.from(text)));
  }

  /** Waits while the other end does not read. What is sent to one that is gone is dropped. */
  async send(channel: number, data: Uint8Array): Promise<void> {
    await this.#write(encode(BINARY, Uint8Array.of(channel), data));
  }

  /** The next message; undefined when the other end has closed. */
  async receive(): Promise<Buffer | undefined> {
    for (;;) {
      const message = this.#decoder.next();
      if (message === undefined) {
        const data: Buffer | null = this.#socket.read();
        if (data !== null) this.#decoder.feed(data);
        else if (this.#ended || this.#failure !== undefined || this.#closed) return undefined;
        else await this.#news();
      } else if (message.opcode === PING) {
        await this.#write(encode(PONG, message.payload));
      } else if (message.opcode === CLOSE) {
        return undefined;
      } else if (message.opcode !== PONG) {
        return message.payload;
      }
    }
  }

  /** Says goodbye if that is possible soon. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#woken();
    if (!this.#socket.destroyed && this.#socket.writable) {
      await new Promise<void>((done) => {
        const timer = setTimeout(done, FAREWELL_MS);
        this.#socket.end(encode(CLOSE, Uint8Array.of(0x03, 0xe8)), () => {
          clearTimeout(timer);
          done();
        });
        this.#socket.once("close", () => {
          clearTimeout(timer);
          done();
        });
      });
    }
    this.#socket.destroy();
  }

  async #write(frame: Buffer): Promise<void> {
    if (this.#closed || this.#socket.destroyed || !this.#socket.writable) return;
    this.#socket.write(frame);
    while (this.#socket.writableNeedDrain && !this.#closed && !this.#socket.destroyed) {
      await this.#news();
    }
  }

  #news(): Promise<void> {
    return new Promise((done) => this.#wake.push(done));
  }

  #woken(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const done of waiting) done();
  }
}
