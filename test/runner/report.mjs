// Parses the TAP output of a process of test files: details of failures, and correct counts.
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
 * @param {{passed: number, failed: number, skipped: string[], parts: [string, number][]}} totals of the run, added to
 * @param {(file: string, isOk: boolean, seconds: number) => void} ended a file did
 * @returns {Promise<number>} how many failed in this process
 */
export function reportTap(stream, totals, ended) {
  const parser = new Parser();
  let failed = 0;
  // These four are emitted for leaf results only, so a subtest that sums up its own results is not counted
  // twice.
  parser.on("pass", () => (totals.passed += 1));
  parser.on("skip", (result) => totals.skipped.push(nameOf(result, result.skip)));
  parser.on("todo", (result) => totals.skipped.push(nameOf(result, result.todo)));
  parser.on("fail", (result) => {
    totals.failed += 1;
    failed += 1;
    showFailure(result);
  });
  parser.on("bailout", (reason) => {
    totals.failed += 1;
    failed += 1;
    console.log(`Bail out! ${reason}`);
  });
  // Each file has two results: its tests, and whether it left anything open.
  const half = new Map();
  parser.on("assert", ({ name, ok, time }) => {
    const before = half.get(name);
    if (before) ended(name, ok && before.ok, before.time / 1000);
    else half.set(name, { ok, time: time ?? 0 });
  });
  parser.on("child", (file) =>
    file.on("assert", ({ name, time }) =>
      totals.parts.push([`${file.name}: ${name}`, (time ?? 0) / 1000]),
    ),
  );
  return new Promise((resolve) => {
    parser.on("complete", () => resolve(failed));
    stream.pipe(parser);
  });
}

const nameOf = (result, why) =>
  `${result.fullname || result.name}${typeof why === "string" ? ` (${why})` : ""}`;

function showFailure(result) {
  console.log(`\nFAILED: ${nameOf(result)}`);
  if (result.tapError) console.log(`  ${result.tapError}`);
  const diag = result.diag ?? {};
  const shown = Object.fromEntries(
    SHOWN.filter((key) => diag[key] !== undefined).map((key) => [key, diag[key]]),
  );
  const text = stringify(Object.keys(shown).length > 0 ? shown : diag).trimEnd();
  console.log(`${text.replace(/^/gm, "  ")}\n`);
}
