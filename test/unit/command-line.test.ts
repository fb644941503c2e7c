// Goal: an operators' command does nothing for `--help` or a mistyped argument, and says how to call it, without a stack.
import t from "tap";
import { HelpRequested, readArguments, UsageError } from "../../server/infra/command-line.ts";

const USAGE = "npm run thing -- <name> [--fast]\n\nDoes it.";
const read = (...args: string[]) =>
  readArguments(args, USAGE, { fast: { type: "boolean" } }, { atMost: 1 });

t.test("what is declared is read", async (t) => {
  t.same(read("a", "--fast").positionals, ["a"]);
  t.same({ ...read("--fast").values }, { fast: true });
});

t.test("--help wins over everything else", async (t) => {
  for (const args of [["--help"], ["-h"], ["a", "--wrong", "--help"]])
    t.throws(() => read(...args), new HelpRequested(USAGE));
});

t.test("anything else is refused, with the way to call it", async (t) => {
  for (const [args, problem] of [
    [["--fats"], "Unknown option '--fats'."],
    [["a", "b"], '"b" is not expected.'],
    [["--fast=1"], "Option '--fast' does not take an argument."],
  ] as const)
    t.throws(() => read(...args), new UsageError(`${problem}\nnpm run thing -- <name> [--fast]`));
});
