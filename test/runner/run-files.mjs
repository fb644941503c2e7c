// Runs compiled test files one after the other in this process, each as a test of its own. Loading the same libraries
// and warming them up would be most of what a small file costs in a process of its own.
import t from "tap";
import { leftBehind } from "./left-behind.mjs";

const timeout = Number(process.env.PURSER_TEST_FILE_LIMIT_MS);
/** Pairs of a file's name and where its compiled form is. */
const files = JSON.parse(process.env.PURSER_TEST_FILES);

for (const [file, compiled] of files) {
  t.test(file, { timeout }, async (t) => {
    // What `import t from "tap"` means in this file: test/runner/compile.mjs.
    globalThis.testOfThisFile = t;
    await import(compiled);
  });
  t.test(file, async (t) => t.same(await leftBehind(), [], "it leaves nothing behind"));
}
