// Reads tap's own output: one line per test file, the details of what failed, and the true counts.
import { Parser } from "tap-parser";
import { stringify } from "tap-yaml";

const SHOWN = [
  "at",
  "compare",
  "diff",
  "found",
  "wanted",
  "doNotWant",
  "error",
  "code",
  "message",
  "stack",
];

/**
 * @param {import("node:stream").Readable} stream
 * @param {{passed: number, failed: number, skipped: number}} totals
 */
export function reportTap(stream, totals) {
  const parser = new Parser();
  // These four are leaf results: a finished subtest that only sums up its own is not counted again.
  parser.on("pass", () => (totals.passed += 1));
  parser.on("skip", () => (totals.skipped += 1));
  parser.on("todo", () => (totals.skipped += 1));
  parser.on("fail", (result) => {
    totals.failed += 1;
    showFailure(result);
  });
  parser.on("assert", (file) => {
    const seconds = file.time === null ? "" : ` (${(file.time / 1000).toFixed(1)} s)`;
    console.log(`${file.ok ? "ok" : "NOT OK"} - ${file.name}${seconds}`);
  });
  parser.on("bailout", (reason) => {
    totals.failed += 1;
    console.log(`Bail out! ${reason}`);
  });
  return new Promise((resolve) => {
    parser.on("complete", () => resolve());
    stream.pipe(parser);
  });
}

function showFailure(result) {
  console.log(`\nFAILED: ${result.fullname}`);
  if (result.tapError) console.log(`  ${result.tapError}`);
  const diag = result.diag ?? {};
  const shown = Object.fromEntries(
    SHOWN.filter((key) => diag[key] !== undefined).map((key) => [key, diag[key]]),
  );
  const text = stringify(Object.keys(shown).length > 0 ? shown : diag).trimEnd();
  console.log(`${text.replace(/^/gm, "  ")}\n`);
}
