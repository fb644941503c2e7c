// Reads what one test file says in TAP: the details of what failed, and the true counts.
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
 * @param {string} file
 * @param {{passed: number, failed: number, skipped: string[]}} totals of the run, added to
 * @returns {Promise<number>} how many failed in this file
 */
export function reportTap(stream, file, totals) {
  const parser = new Parser();
  let failed = 0;
  // These four are leaf results: a finished subtest that only sums up its own is not counted again.
  parser.on("pass", () => (totals.passed += 1));
  parser.on("skip", (result) => totals.skipped.push(nameOf(file, result, result.skip)));
  parser.on("todo", (result) => totals.skipped.push(nameOf(file, result, result.todo)));
  parser.on("fail", (result) => {
    totals.failed += 1;
    failed += 1;
    showFailure(file, result);
  });
  parser.on("bailout", (reason) => {
    totals.failed += 1;
    failed += 1;
    console.log(`Bail out! ${reason}`);
  });
  return new Promise((resolve) => {
    parser.on("complete", () => resolve(failed));
    stream.pipe(parser);
  });
}

const nameOf = (file, result, why) =>
  `${file} > ${result.fullname || result.name}${typeof why === "string" ? ` (${why})` : ""}`;

function showFailure(file, result) {
  console.log(`\nFAILED: ${nameOf(file, result)}`);
  if (result.tapError) console.log(`  ${result.tapError}`);
  const diag = result.diag ?? {};
  const shown = Object.fromEntries(
    SHOWN.filter((key) => diag[key] !== undefined).map((key) => [key, diag[key]]),
  );
  const text = stringify(Object.keys(shown).length > 0 ? shown : diag).trimEnd();
  console.log(`${text.replace(/^/gm, "  ")}\n`);
}
