import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/global-setup.ts"],
    setupFiles: ["test/environment.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // One daemon, two cores: more at once only makes them wait for one another.
    maxWorkers: 2,
  },
});
