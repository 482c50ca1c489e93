import { afterAll, expect, test } from "vitest";
import { NotFoundError, Sandbox } from "../src/index.ts";
import { rejection } from "./waiting.ts";

const label = { suite: "ports" };
afterAll(async () => {
  for (const sandbox of await Sandbox.list({ labels: label })) await sandbox.remove();
});

test("a server inside is reached on a port here, until it is unpublished", async () => {
  await using sandbox = await Sandbox.create({ labels: label, ports: ["0:8000"] });
  const listed = await sandbox.ports.list();
  expect(listed).toMatchObject([{ port: 8000, address: "127.0.0.1", open: true, public: false }]);
  await sandbox.jobs.start(["python3", "-m", "http.server", "8000"]);
  const url = `http://127.0.0.1:${listed[0]?.host_port}/`;
  await expect
    .poll(
      () =>
        fetch(url, { signal: AbortSignal.timeout(5000) }).then(
          (answer) => answer.status,
          () => 0,
        ),
      { timeout: 30_000 },
    )
    .toBe(200);
  await sandbox.ports.unpublish(8000);
  await expect(fetch(url, { signal: AbortSignal.timeout(5000) })).rejects.toThrow();
  expect(await rejection(sandbox.ports.unpublish(8000))).toBeInstanceOf(NotFoundError);
});

test("a preview has a token, and an address where there is a network", async () => {
  await using sandbox = await Sandbox.create({ labels: label });
  const made = await sandbox.ports.publish("preview:3000");
  expect(made).toMatchObject({ port: 3000, address: null, host_port: null, open: true });
  expect(made.preview_host).toBe(`3000-${sandbox.id}.localhost`);
  expect(made.token).toMatch(/^akp_/);
  // The daemon of these tests listens on its socket alone.
  expect(await rejection(sandbox.previewUrl(3000))).toBeInstanceOf(NotFoundError);
  expect(await rejection(sandbox.previewUrl(4000))).toBeInstanceOf(NotFoundError);
});
