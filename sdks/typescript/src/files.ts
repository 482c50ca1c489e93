/** Files of a sandbox. Every call runs inside it: a link of the guest's leads nowhere else. */

import { randomUUID } from "node:crypto";
import { type CallOptions, type Client, LONG_CALL_SECONDS, PIECE_SECONDS } from "./client.ts";
import { given } from "./commands.ts";
import { GuestFileNotFoundError, GuestNotADirectoryError } from "./error-types.ts";
import { broken, parseObject } from "./problems.ts";
import {
  type Change,
  changeOf,
  count,
  type Entry,
  entryOf,
  listOf,
  objectOf,
  type TreeSummary,
  uploadedFiles,
} from "./results.ts";
import { serverEvents } from "./sse.ts";
import { type Query, segment } from "./target.ts";
import type { Schemas } from "./wire.ts";

/** Bytes where a name is not UTF-8, as in `Entry.nameBytes`. */
export type GuestPath = string | Uint8Array;
export type Content = string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

export interface FileOptions extends CallOptions {
  /** With whose rights: root, user, a number; without it, the sandbox's own user's. */
  user?: string;
}

export interface RangeOptions extends FileOptions {
  offset?: number;
  length?: number;
}

export interface TreeOptions extends FileOptions {
  /** More is refused: 4 GiB unless given. */
  limitBytes?: number;
  /** More entries are refused: 1,000,000 unless given. */
  limitFiles?: number;
}

export class Files {
  readonly #client: Client;
  readonly #path: string;

  constructor(client: Client, sandbox: string) {
    this.#client = client;
    this.#path = `/v1/sandboxes/${segment(sandbox)}`;
  }

  /** As text. TypeError if it is not UTF-8: nothing is bent. */
  async read(path: GuestPath, options: FileOptions = {}): Promise<string> {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return decoder.decode(await this.readBytes(path, options));
  }

  async readBytes(path: GuestPath, options: RangeOptions = {}): Promise<Buffer> {
    return this.#client.fetch("GET", `${this.#path}/files`, {
      query: range(path, options),
      seconds: LONG_CALL_SECONDS,
      signal: options.signal,
    });
  }

  /** In pieces as they come, for files of any size. DaemonError if it breaks off. */
  readStream(path: GuestPath, options: RangeOptions = {}): AsyncGenerator<Buffer, void, undefined> {
    return this.#client.pieces(`${this.#path}/files`, {
      query: range(path, options),
      patience: PIECE_SECONDS,
      signal: options.signal,
    });
  }

  /** Replaces the file, whole or not at all; its size. `data` may come in pieces. */
  async write(
    path: GuestPath,
    data: Content,
    options: FileOptions & { mode?: number; parents?: boolean } = {},
  ): Promise<number> {
    const query = { path, user: options.user, mode: octal(options.mode), parents: options.parents };
    return this.#put(query, data, options);
  }

  async append(path: GuestPath, data: Content, options: FileOptions = {}): Promise<number> {
    return this.#put({ path, user: options.user, append: true }, data, options);
  }

  /**
   * Writes several files below the directory `path`, with their parents, in one call; their sizes.
   * At most 1000 files that are in memory: `uploadTar` is for more.
   */
  async upload(
    files: Record<string, string | Uint8Array>,
    path: GuestPath,
    options: FileOptions & { mode?: number } = {},
  ): Promise<Record<string, number>> {
    const boundary = randomUUID();
    const answer = await this.#client.fetch("POST", `${this.#path}/files`, {
      query: { path, mode: octal(options.mode), user: options.user },
      body: form(files, boundary),
      headers: { "Content-Type": `multipart/form-data; boundary=${boundary}` },
      seconds: LONG_CALL_SECONDS,
      signal: options.signal,
    });
    return uploadedFiles(parseObject(answer.toString("utf8")));
  }

  async stat(path: GuestPath, options: FileOptions & { follow?: boolean } = {}): Promise<Entry> {
    const query = { path, user: options.user, follow: options.follow === false ? 0 : undefined };
    const { signal } = options;
    return entryOf(await this.#client.call("GET", `${this.#path}/stat`, { query, signal }));
  }

  async exists(path: GuestPath, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof GuestFileNotFoundError) return false;
      if (error instanceof GuestNotADirectoryError) return false;
      throw error;
    }
  }

  async list(path: GuestPath, options: FileOptions = {}): Promise<Entry[]> {
    const query = { path, user: options.user };
    const { signal } = options;
    const answer = await this.#client.call("GET", `${this.#path}/list`, { query, signal });
    return listOf(answer, "entries").map(entryOf);
  }

  async mkdir(
    path: string,
    options: FileOptions & { mode?: number; parents?: boolean } = {},
  ): Promise<void> {
    const { user, parents, signal } = options;
    const mode = octal(options.mode);
    const json = given<Schemas["MakeDirectory"]>({ path, user, parents, mode });
    await this.#client.call("POST", `${this.#path}/mkdir`, { json, signal });
  }

  async move(
    path: string,
    to: string,
    options: FileOptions & { replace?: boolean } = {},
  ): Promise<void> {
    const { user, replace, signal } = options;
    const json = given<Schemas["Move"]>({ path, to, user, replace });
    await this.#client.call("POST", `${this.#path}/move`, { json, signal });
  }

  async remove(
    path: GuestPath,
    options: FileOptions & { recursive?: boolean } = {},
  ): Promise<void> {
    await this.#client.call("DELETE", `${this.#path}/files`, {
      query: { path, user: options.user, recursive: options.recursive },
      seconds: LONG_CALL_SECONDS,
      signal: options.signal,
    });
  }

  /**
   * What is below a directory as a tar archive, in pieces, every name below `prefix`. What a sandbox
   * put into it is for the reader to mistrust. DaemonError if it breaks off: then it has no end.
   */
  downloadTar(
    path: GuestPath,
    options: TreeOptions & { prefix?: string } = {},
  ): AsyncGenerator<Buffer, void, undefined> {
    return this.#client.pieces(`${this.#path}/tree`, {
      query: { ...tree(path, options), prefix: options.prefix },
      patience: PIECE_SECONDS,
      signal: options.signal,
    });
  }

  /** Unpacks a tar archive (not a compressed one) into `path`, inside the sandbox. */
  async uploadTar(
    pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    path: GuestPath,
    options: TreeOptions = {},
  ): Promise<TreeSummary> {
    const query = tree(path, options);
    const { signal } = options;
    const answer = objectOf(
      await this.#client.upload(`${this.#path}/tree`, pieces, { query, signal }),
    );
    return { files: count(answer, "files"), bytes: count(answer, "bytes") };
  }

  /** Changes below a directory, or of a file, until the caller stops or it is gone. */
  async *watch(
    path: GuestPath,
    options: FileOptions & { recursive?: boolean } = {},
  ): AsyncGenerator<Change, void, undefined> {
    const query = { path, user: options.user, recursive: options.recursive };
    const { signal } = options;
    const stream = serverEvents(this.#client, `${this.#path}/watch`, { query, signal });
    for await (const { kind, body } of stream) {
      if (kind === "end") return;
      yield changeOf(kind, body);
    }
    throw broken("a watch that has no end");
  }

  async #put(query: Query, data: Content, options: FileOptions): Promise<number> {
    const where = `${this.#path}/files`;
    const { signal } = options;
    if (typeof data === "string" || data instanceof Uint8Array) {
      const answer = await this.#client.fetch("PUT", where, {
        query,
        body: typeof data === "string" ? Buffer.from(data) : data,
        headers: { "Content-Type": "application/octet-stream" },
        seconds: LONG_CALL_SECONDS,
        signal,
      });
      return count(parseObject(answer.toString("utf8")), "size");
    }
    return count(objectOf(await this.#client.upload(where, data, { query, signal })), "size");
  }
}

/** Files as `multipart/form-data`. Preconditions: no content holds the boundary. */
function form(files: Record<string, string | Uint8Array>, boundary: string): Buffer {
  const parts: Uint8Array[] = [];
  for (const [name, content] of Object.entries(files)) {
    const quoted = name
      .replace(/\\/g, "\\\\")
      .replace(/["\r\n]/g, (letter) => encodeURIComponent(letter));
    const head = `Content-Disposition: form-data; name="file"; filename="${quoted}"`;
    parts.push(Buffer.from(`--${boundary}\r\n${head}\r\n\r\n`));
    parts.push(typeof content === "string" ? Buffer.from(content) : content, Buffer.from("\r\n"));
  }
  return Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
}

function range(path: GuestPath, options: RangeOptions): Query {
  const { offset, length, user } = options;
  return { path, offset: offset || undefined, length, user };
}

function tree(path: GuestPath, options: TreeOptions): Query {
  const { limitBytes, limitFiles, user } = options;
  return { path, limit_bytes: limitBytes, limit_files: limitFiles, user };
}

function octal(mode: number | undefined): string | undefined {
  return mode?.toString(8);
}
