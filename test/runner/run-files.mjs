// Runs compiled test files one after the other in this process, each as its own subtest. In a process of its
// own, a small file would spend most of its time on loading and warming up the same libraries.
import t from "tap";
import { leftBehind } from "./left-behind.mjs";

/** Each file's name, the path of its compiled form, and how long it may take. */
const files = JSON.parse(process.env.PURSER_TEST_FILES);

for (const [file, compiled, limitSeconds] of files) {
  t.test(file, { timeout: limitSeconds * 1000 }, async (t) => {
    // The `t` of `import t from "tap"` in this file: test/runner/compile.mjs.
    globalThis.testOfThisFile = t;
    await import(compiled);
  });
  t.test(file, async (t) => t.same(await leftBehind(), [], "it leaves nothing behind"));
}
