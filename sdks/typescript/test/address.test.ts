import { homedir } from "node:os";
import { expect, test } from "vitest";
import { addressOfUrl, statePath } from "../src/address.ts";
import { Client, InvalidInputError, PolicyDeniedError } from "../src/index.ts";
import { hostEnvironment } from "../src/toolchains.ts";

test.each([
  ["unix:/run/api.sock", { kind: "unix", socketPath: "/run/api.sock", stateDir: undefined }],
  ["unix:~/api.sock", { kind: "unix", socketPath: `${homedir()}/api.sock`, stateDir: undefined }],
  ["http://127.0.0.1:8700", { kind: "tcp", secure: false, host: "127.0.0.1", port: 8700 }],
  ["http://[::1]:8700/", { kind: "tcp", secure: false, host: "::1", port: 8700 }],
  ["https://ak.example.org", { kind: "tcp", secure: true, host: "ak.example.org", port: 443 }],
])("%s", (url, address) => {
  expect(addressOfUrl(url, {})).toEqual(address);
});

test.each([
  "",
  "ftp://host",
  "127.0.0.1:8700",
  "https://host/path",
  "https://host?x=1",
  "nonsense",
])("%s is none", (url) => {
  expect(() => addressOfUrl(url, {})).toThrow(InvalidInputError);
});

test("a user in the address is refused, and not repeated", () => {
  const url = new URL("https://host:1");
  url.username = "me";
  expect(() => addressOfUrl(String(url), {})).toThrow(InvalidInputError);
});

test("clear text beyond this machine has to be asked for", () => {
  expect(() => addressOfUrl("http://host:1", {})).toThrow(PolicyDeniedError);
  const asked = addressOfUrl("http://host:1", { AGENTKERNEL_INSECURE_HTTP: "1" });
  expect(asked).toMatchObject({ host: "host" });
});

test("the state directory is where Python's client has it", () => {
  expect(statePath({ AGENTKERNEL_STATE_DIR: "/a/b/" })).toBe("/a/b");
  expect(statePath({ XDG_STATE_HOME: "/x" })).toBe("/x/agentkernel");
  expect(statePath({ HOME: "/home/me" })).toBe("/home/me/.local/state/agentkernel");
});

test("words that can't be headers are refused here", () => {
  const url = "http://127.0.0.1:1";
  for (const token of ["a b", "a\r\nb", "ä"]) {
    expect(() => new Client({ url, token })).toThrow(InvalidInputError);
  }
  expect(() => new Client({ owner: "a\r\nb" })).toThrow(InvalidInputError);
  expect(new Client({ url, token: "ak_1" }).local).toBe(false);
});

test("of the environment only toolchains are told, and of those only text", () => {
  const told = hostEnvironment({ PATH: "/bin:/odd\n:/usr/bin", SECRET: "x", NVM_DIR: "/n" });
  expect(told).toEqual({ PATH: "/bin:/usr/bin", NVM_DIR: "/n" });
});
