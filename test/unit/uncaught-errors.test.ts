// Goal: an error that no test catches fails its file, and is printed with its place.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import t from "tap";

const RUNNER = join(import.meta.dirname, "..", "runner", "run-files.mjs");

for (const [how, source] of [
  ["thrown by a timer", `setTimeout(() => { throw new Error("uncaught"); }, 1);`],
  ["a rejected promise", `void Promise.reject(new Error("uncaught"));`],
] as const)
  t.test(how, async (t) => {
    const folder = t.testdir({
      "good.mjs": `globalThis.testOfThisFile.ok(true);`,
      "bad.mjs": `globalThis.testOfThisFile.test("part", async (t) => {
        ${source}
        await new Promise((done) => setTimeout(done, 1_000));
        t.ok(true);
      });`,
    });
    const files = ["good.mjs", "bad.mjs"].map((name) => [name, join(folder, name), 60]);
    const run = promisify(execFile)(process.execPath, [RUNNER], {
      env: { PATH: process.env["PATH"], PURSER_TEST_FILES: JSON.stringify(files) },
    });
    const failed = (await t.rejects(run)) as unknown as { stdout: string; stderr: string };
    t.match(failed.stdout, /^ok 1 - good\.mjs/m, "the file before it has its result");
    t.match(failed.stdout, /^ *not ok \d+ - (part|uncaught)/m);
    t.match(failed.stdout + failed.stderr, /bad\.mjs:2/);
  });
