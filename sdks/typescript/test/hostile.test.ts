/** Answers that no daemon of ours gives: every one is a typed error, none is waited for for ever. */

import { mkdtempSync, rmSync } from "node:fs";
import * as http from "node:http";
import * as net from "node:net";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Client, DaemonError, Host, run, runStream, Sandbox, StateError } from "../src/index.ts";
import { rejection } from "./waiting.ts";

let place: string;
const servers: net.Server[] = [];
beforeAll(() => {
  place = mkdtempSync(path.join(tmpdir(), "agentkernel-ts-"));
});
afterAll(() => {
  for (const server of servers) server.close();
  rmSync(place, { recursive: true });
});

const version = (client: Client) => new Host({ client }).version();

/** A server that does `behave` with each connection, and a client of it. */
async function raw(
  behave: (socket: net.Socket, number: number) => void,
  options: net.ServerOpts = {},
): Promise<Client> {
  let number = 0;
  const server = net.createServer(options, (socket) => {
    socket.on("error", () => undefined);
    behave(socket, number++);
  });
  servers.push(server);
  const url = path.join(place, `${servers.length}.sock`);
  await new Promise<void>((done) => server.listen(url, done));
  return new Client({ url: `unix:${url}` });
}

/** Answers every request with these bytes and closes. */
const answering = (text: string) => raw((socket) => socket.once("data", () => socket.end(text)));

const head = (status: number, length: number, kind = "application/json"): string =>
  `HTTP/1.1 ${status} X\r\nContent-Type: ${kind}\r\nContent-Length: ${length}\r\n\r\n`;

test.each([
  ["nothing", ""],
  ["what is not HTTP", "SSH-2.0-OpenSSH\r\n\r\n"],
  ["half a head", "HTTP/1.1 200 OK\r\nContent-"],
  ["half a body", `${head(200, 100)}{"id":`],
  ["what is not JSON", `${head(200, 3)}abc`],
  ["no object", `${head(200, 2)}[]`],
  ["an object that lacks everything", `${head(200, 2)}{}`],
  ["another kind of field", `${head(200, 26)}{"id":1,"state":"running" }`],
  ["an error that is no problem", head(500, 0)],
  ["a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"],
])("%s", async (_, text) => {
  const client = await answering(text);
  expect(await rejection(Sandbox.connect("some", { client }))).toBeInstanceOf(DaemonError);
  expect(await rejection(run("true", { client }))).toBeInstanceOf(DaemonError);
  expect(await rejection(runStream("true", { client }).wait())).toBeInstanceOf(DaemonError);
});

test("a problem is its error wherever it comes from", async () => {
  const body = '{"code":"state_unavailable","detail":"disk","retryable":true}';
  const client = await answering(head(503, body.length, "application/problem+json") + body);
  expect(await rejection(version(client))).toBeInstanceOf(StateError);
  expect(await rejection(runStream("true", { client }).wait())).toBeInstanceOf(StateError);
});

test("a transfer that breaks off is an error, and what came was given", async () => {
  const body = '{"id":"some","state":"running"}';
  const client = await raw((socket) => {
    socket.on("data", (data) => {
      if (data.includes("/files")) {
        socket.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
      } else socket.write(head(200, body.length) + body);
    });
  });
  const sandbox = await Sandbox.connect("some", { client });
  expect(await rejection(sandbox.files.readBytes("/x"))).toBeInstanceOf(DaemonError);
  const pieces = sandbox.files.readStream("/x");
  expect((await pieces.next()).value?.toString()).toBe("abc");
  expect(await rejection(pieces.next())).toBeInstanceOf(DaemonError);
});

test("an answer before the end of an upload counts, also while its source hangs", async () => {
  const body = '{"id":"some","state":"running"}';
  const problem = '{"code":"disk_full","detail":"no room","retryable":false}';
  const client = await raw((socket) => {
    socket.on("data", (data) => {
      if (data.includes("PUT ")) socket.write(head(507, problem.length) + problem);
      else if (data.includes("GET ")) socket.write(head(200, body.length) + body);
    });
  });
  async function* hanging() {
    yield Buffer.alloc(1 << 16);
    await new Promise(() => undefined);
  }
  const sandbox = await Sandbox.connect("some", { client });
  expect(await rejection(sandbox.files.write("/x", hanging()))).toMatchObject({
    code: "disk_full",
  });
});

test("what was read and not answered is not repeated", async () => {
  let requests = 0;
  const client = await raw((socket) =>
    socket.once("data", () => {
      requests += 1;
      socket.end();
    }),
  );
  const error = await rejection(run("true", { client }));
  expect(error).toMatchObject({
    code: "daemon_unavailable",
    hint: expect.stringContaining("look"),
  });
  expect(requests).toBe(1);
});

test("what a daemon never read is sent again", async () => {
  const body = '{"outcome":"exited","exit_code":0,"signal":null}';
  const behave = (socket: net.Socket, number: number): void => {
    // Closing with unread bytes is a reset, as of a daemon that was killed.
    if (number < 3) setTimeout(() => socket.destroy(), 20);
    else {
      socket.once("data", () => socket.end(head(200, body.length) + body));
      socket.resume();
    }
  };
  const client = await raw(behave, { pauseOnConnect: true });
  expect((await run("true", { client })).exitCode).toBe(0);
});

test("a stream that is none, or ends without a word", async () => {
  const wrong =
    "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
  const client = await answering(wrong);
  expect(await rejection(runStream("true", { client }).wait())).toBeInstanceOf(DaemonError);
});

test("a token goes to an address with a port, and nowhere else", async () => {
  const seen: Array<http.IncomingHttpHeaders> = [];
  const server = http.createServer((request, response) => {
    seen.push(request.headers);
    response.end("{}");
  });
  servers.push(server);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as net.AddressInfo;
  const client = new Client({ url: `http://127.0.0.1:${port}`, token: "ak_secret", owner: "a:b" });
  await version(client);
  expect(seen[0]).toMatchObject({
    authorization: "Bearer ak_secret",
    host: `127.0.0.1:${port}`,
    "agentkernel-owner": "a:b",
  });
  // Toolchains of this machine mean nothing there.
  expect(client.local).toBe(false);
  await version(new Client({ url: `http://127.0.0.1:${port}` }));
  expect(seen[1]?.authorization).toBeUndefined();
  client.close();
});

test("nobody at an address is told of", async () => {
  const server = net.createServer();
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as net.AddressInfo;
  await new Promise((done) => server.close(done));
  const error = await rejection(version(new Client({ url: `http://127.0.0.1:${port}` })));
  expect(error).toBeInstanceOf(DaemonError);
  expect(error).toMatchObject({ hint: expect.stringContaining("--listen") });
});
